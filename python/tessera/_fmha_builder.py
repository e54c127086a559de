"""A problem of attention, built by setters."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from . import _abi
from ._checks import checked
from ._problem import Problem
from ._values import number


class FmhaProblemBuilder:
    """Builds a problem of attention by the setters of CK Tile's problem builder, in any order.

    FmhaProblemBuilder().data_type("bf16").dims(128, 128, 2, 512, 512).nheads(32, 8).build()

    docs/attention.md says which field of the problem each setter sets. The last call of a setter
    counts; words and rules are checked by build().
    """

    def __init__(self) -> None:
        self._settings: Dict[str, List[Any]] = {}

    def _call(self, setter: str, *arguments: Any) -> "FmhaProblemBuilder":
        self._settings[setter] = list(arguments)
        return self

    def api_family(self, word: str) -> "FmhaProblemBuilder":
        """fwd, fwd_pagedkv, fwd_splitkv, fwd_appendkv, batch_prefill, bwd"""
        return self._call("api_family", word)

    def kernel_family(self, word: str) -> "FmhaProblemBuilder":
        """One of the kernels that CK Tile has for the API family."""
        return self._call("kernel_family", word)

    def gfx_arch(self, target: str) -> "FmhaProblemBuilder":
        """What `target` is: Dispatcher(target=builder.target)."""
        return self._call("gfx_arch", target)

    def data_type(self, word: str) -> "FmhaProblemBuilder":
        """fp32, fp16, bf16, fp8, bf8, fp8fp16, fp8bf16, fp8fp32"""
        return self._call("data_type", word)

    def dims(self, hdim_q: int, hdim_v: int, batch: int, seqlen_q: int, seqlen_k: int
             ) -> "FmhaProblemBuilder":
        """With group_mode the lengths are those of all sequences together."""
        return self._call("dims", hdim_q, hdim_v, batch, seqlen_q, seqlen_k)

    def nheads(self, q: int, k: int) -> "FmhaProblemBuilder":
        return self._call("nheads", q, k)

    @checked
    def mask_type(self, word: Union[str, int]) -> "FmhaProblemBuilder":
        """no, top_left, bottom_right, generic; or 0 to 3"""
        return self._call("mask_type", str(word))

    @checked
    def bias_type(self, word: Union[str, int]) -> "FmhaProblemBuilder":
        """no, elementwise, alibi; or 0 to 2"""
        return self._call("bias_type", str(word))

    def lse(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("lse", value)

    def dropout(self, value: bool, p_drop: float = 0.2) -> "FmhaProblemBuilder":
        return self._call("dropout", value, number("p_drop", p_drop))

    def qscale_type(self, word: str) -> "FmhaProblemBuilder":
        """no, pertensor, blockscale, kv_blockscale"""
        return self._call("qscale_type", word)

    def rope_type(self, word: str) -> "FmhaProblemBuilder":
        """none, interleaved, half_rotated"""
        return self._call("rope_type", word)

    def logits_soft_cap(self, value: bool, cap: float = 30.0) -> "FmhaProblemBuilder":
        return self._call("logits_soft_cap", value, number("cap", cap))

    def v_rowmajor(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("v_rowmajor", value)

    def group_mode(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("group_mode", value)

    def paged_kv(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("paged_kv", value)

    def fp8_static_quant(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("fp8_static_quant", value)

    def skip_min_seqlen_q(self, value: bool, longest: int = 1) -> "FmhaProblemBuilder":
        """Whether sequences of at most `longest` queries are left out."""
        return self._call("skip_min_seqlen_q", value, longest)

    def sink(self, value: bool) -> "FmhaProblemBuilder":
        return self._call("sink", value)

    def kv_cache(self, layout: str, table: str, page: int) -> "FmhaProblemBuilder":
        """linear or vectorized; vllm_2d or sglang_1d; tokens of a page"""
        return self._call("kv_cache", layout, table, page)

    def window(self, left: int, right: int) -> "FmhaProblemBuilder":
        return self._call("window", left, right)

    def sink_size(self, tokens: int) -> "FmhaProblemBuilder":
        return self._call("sink_size", tokens)

    def max_seqlen(self, q: int, k: int) -> "FmhaProblemBuilder":
        return self._call("max_seqlen", q, k)

    def num_splits(self, parts: int) -> "FmhaProblemBuilder":
        return self._call("num_splits", parts)

    def bwd_flags(self, dbias: bool, store_randval: bool, deterministic: bool
                  ) -> "FmhaProblemBuilder":
        return self._call("bwd_flags", dbias, store_randval, deterministic)

    @property
    def deterministic(self) -> bool:
        """The last flag of bwd_flags(): Dispatcher(deterministic=builder.deterministic)."""
        return bool(self._settings.get("bwd_flags", [False])[-1])

    @property
    def target(self) -> Optional[str]:
        """The word of gfx_arch(), or None."""
        given = self._settings.get("gfx_arch")
        return given[0] if given else None

    def build(self) -> Problem:
        """Raises Error for an unknown word and with the rule that the settings break."""
        made = Problem.__new__(Problem)
        text = _abi.as_json(self._settings, "setters take")
        made._make("tsr_problem_build", _abi.encode("fmha"), _abi.encode(text))
        return made
