"""The original's words for attention, and Tessera's: problems, kernels, arrays of a launch."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy

import tessera
from tessera import Error

from . import checked, dtypes, hints
from .gemm import Wish, triple
from .targets import Target, pipelines

FAMILIES = ("fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_appendkv", "batch_prefill", "bwd")
MASKS = {0: "no", 1: "top_left", 2: "bottom_right", 3: "generic"}
BIASES = {0: "no", 1: "elementwise", 2: "alibi"}
# Further spellings of the original's.
SPELLINGS = {"causal": "top_left", "t": "top_left", "b": "bottom_right", "g": "generic",
             "window_generic": "generic", "none": "no", "no_mask": "no", "no_bias": "no",
             "bias": "elementwise", "elementwise_bias": "elementwise"}
KINDS = {"bwd": "backward", "fwd_appendkv": "append"}
# What the original's library takes where a caller only says that there is one.
SOFT_CAP, P_DROP, SINK, PAGE = 30.0, 0.2, 4, 64


def word_of(table: Dict[int, str], word: Any, what: str) -> str:
    """A number or a word of a table as a word; "causal" is "top_left", and "bias" "elementwise"."""
    if isinstance(word, int) and word in table:
        return table[word]
    if not isinstance(word, (int, str)):
        raise Error(f"{what} must be a text or a number, got a {type(word).__name__}")
    found = SPELLINGS.get(str(word), word)
    if found not in table.values():
        raise Error(f"{what} must be one of {', '.join(table.values())}, got '{word}'")
    return found


def builder_of(p: Any, family: str, data_type: str, **given: Any) -> tessera.FmhaProblemBuilder:
    """p: batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v. given: mask_type, bias_type,
    lse, dropout, soft_cap, window, sink, skip, num_splits, page_size, dbias, rope."""
    if family not in FAMILIES:
        raise Error(f"api_family must be one of {', '.join(FAMILIES)}, got '{family}'")
    groups = family == "batch_prefill"
    lengths = ((p.batch * p.seqlen_q, p.batch * p.seqlen_k) if groups
               else (p.seqlen_q, p.seqlen_k))
    b = (tessera.FmhaProblemBuilder().api_family(family).data_type(data_type)
         .dims(p.hdim_q, p.hdim_v, p.batch, *lengths).nheads(p.nhead_q, p.nhead_k))
    if groups:
        b.group_mode(True).max_seqlen(p.seqlen_q, p.seqlen_k)
    if family != "fwd_appendkv":
        b.mask_type(word_of(MASKS, given.get("mask_type", 0), "mask_type"))
        b.bias_type(word_of(BIASES, given.get("bias_type", 0), "bias_type"))
        b.lse(bool(given.get("lse")) or family == "bwd")
    if given.get("dropout"):
        b.dropout(True, given["dropout"])
    if given.get("soft_cap"):
        b.logits_soft_cap(True, given["soft_cap"])
    if given.get("window") is not None:
        b.window(*given["window"])
    if given.get("sink"):
        b.sink(True).sink_size(given["sink"])
    if given.get("skip") and groups:  # equal sequences are left out all together or not at all
        b.skip_min_seqlen_q(True, given["skip"])
    if family == "fwd_splitkv":
        b.num_splits(given.get("num_splits") or 0)
    if family in ("fwd_pagedkv", "batch_prefill"):
        table = "sglang_1d" if groups and given.get("kv_lookup") == "sglang" else "vllm_2d"
        b.paged_kv(True).kv_cache("linear", table, given.get("page_size") or PAGE)
    if given.get("rope", "none") != "none":
        b.rope_type(given["rope"])
    if family == "bwd":
        b.bwd_flags(bool(given.get("dbias")), False, bool(given.get("deterministic")))
    return b


def with_strides(problem: tessera.Problem, names: Sequence[str]) -> tessera.Problem:
    """The problem whose operands of these names lie {batch, head, token, element}."""
    fields: Dict[str, int] = {}
    for operand in problem.operands:
        if operand.name in names and len(operand.shape) == 4:
            _, heads, tokens, size = operand.shape
            for axis, stride in zip("bhs", (heads * tokens * size, tokens * size, size)):
                fields[f"{operand.name}_stride_{axis}"] = stride
    return tessera.Problem(problem.line, **fields) if fields else problem


def pages_of(cache: Any, page: int) -> Any:
    """(batch, heads, tokens, element) as pages (pages, page, heads, element), which follow each
    other; the last page of a sequence is filled up with zeros."""
    batch, heads, tokens, size = cache.shape
    per_sequence = -(-tokens // page)
    paged = numpy.zeros((batch, per_sequence * page, heads, size), cache.dtype)
    paged[:, :tokens] = cache.transpose(0, 2, 1, 3)
    return paged.reshape(batch * per_sequence, page, heads, size)


def own_operands(problem: tessera.Problem, p: Any, page: int, given: Dict[str, Any]
                 ) -> Dict[str, Any]:
    """Arrays for what the caller did not give: equal lengths, pages that follow each other, a bias
    and slopes of zeros, seed 1, embeddings of the usual angles."""
    per_sequence = -(-p.seqlen_k // page)
    starts = numpy.arange(p.batch + 1, dtype=numpy.int32)
    held = 0 if "kind=append" in problem.line else p.seqlen_k

    def turned(operand: Any) -> Any:
        count, half = operand.shape
        angles = numpy.arange(count)[:, None] * 10000.0 ** (-numpy.arange(half) / half)
        return getattr(numpy, operand.name)(angles).astype(numpy.float32)

    def empty(operand: Any) -> Any:
        dtype = dtypes.numpy_dtype(operand.dtype, getattr(given.get("q"), "dtype", None))
        order = sorted(range(len(operand.shape)), key=lambda i: -operand.strides[i])
        made = numpy.zeros([operand.shape[i] for i in order], dtype)
        return made.transpose(numpy.argsort(order))

    usual = {"seqlens_q": lambda operand: starts * p.seqlen_q,
             "seqlens_k": lambda operand: numpy.full(p.batch, held, numpy.int32),
             "page_table": lambda operand: numpy.arange(
                 p.batch * per_sequence, dtype=numpy.int32).reshape(operand.shape),
             "page_starts": lambda operand: starts * per_sequence,
             "dropout_rng": lambda operand: numpy.array([1, 0, 0, 0], numpy.int32),
             "cos": turned, "sin": turned}
    return {operand.name: usual.get(operand.name, empty if operand.access != "read" else
                                    lambda operand: fitted(numpy.zeros(1), operand))(operand)
            for operand in problem.operands if operand.name not in given}


def fitted(array: Any, operand: tessera.Operand) -> Any:
    """An array in an operand's type and shape. What the operand repeats, by strides of 0, is there
    once: slopes of (heads,) are those of every sequence."""
    once = tuple(1 if stride == 0 else size for size, stride in zip(operand.shape, operand.strides))
    given = numpy.asarray(array)
    wanted = dtypes.numpy_dtype(operand.dtype, given.dtype)
    if given.size == 1:
        given = numpy.full(once, checked.as_numbers(given, wanted, operand.name).reshape(()))
    if given.size == numpy.prod(once, dtype=int):
        given = given.reshape(once)
    elif given.shape != operand.shape:
        raise Error(f"{operand.name} must have the shape {operand.shape}, got {given.shape}")
    stored = numpy.ascontiguousarray(checked.as_numbers(given, wanted, operand.name))
    return numpy.broadcast_to(stored, operand.shape)


def _matching(target: Target, **patterns: str) -> Tuple[List[str], str]:
    """(the kernels that match, a sentence where there are none)"""
    try:
        found = tessera.KernelSet("ck_dispatcher", target.word).op("fmha").where(**patterns).kernels
    except Error as error:
        return [], str(error)
    return found, "" if found else f"{target.name} has no kernel of attention with " + ", ".join(
        f"{key}={word}" for key, word in patterns.items())


def _essential(target: Target, kind: str, dtype: str, notes: List[str]) -> Wish:
    """The shipped set of a kind and a type."""
    try:
        shipped = tessera.KernelSet("ck_dispatcher", target.word).preselected(
            f"{kind}_{dtype}_essential")
        return Wish(shipped.kernels, notes, False)
    except Error as error:
        return Wish([], [str(error)], False)


def named_kernels(config: Any, target: Target) -> Wish:
    """The kernels for a configuration: those of the shipped set of its kind and type, or the ones
    that its tile and pipeline name where the target has such a pipeline. On AMD's GPUs a tile may
    be one of the original's that Tessera does not have; then it is the set's, too."""
    there = pipelines(target, "fmha")
    if not there:
        return Wish([], [f"target {target.name} has no kernels for attention"], False)
    ignored = hints.of_config(config)
    kind = KINDS.get(config.family, "forward")
    if config.pipeline in there:
        tile = triple(config.tile_m0, config.tile_n0, config.tile_k0max)
        patterns = {"kind": kind, "in": config.data_type, "pipeline": config.pipeline}
        found, why = _matching(target, **patterns, tile=tile)
        if found:
            return Wish(found, ignored, True)
        if target.backend == "hip":
            note = (f"tile {tile} is no kernel's of attention on {target.name}; its kernels for "
                    "this kind and type are taken")
            return _essential(target, kind, config.data_type, [note, *ignored])
        return Wish([], [why], True)
    note = (f"pipeline {config.pipeline} is not one of {target.name}'s, {', '.join(there)}; its "
            "kernels for this kind and type are taken")
    return _essential(target, kind, config.data_type, [note, *ignored])


def file_name(spec: Dict[str, Any]) -> str:
    """Attention's files of the original end in a digest; Tessera's name says the same in words."""
    return spec["name"]


def reference(Q: Any, K: Any, V: Any, scale: float, mask_type: Any = 0, bias: Optional[Any] = None,
              soft_cap: float = 0.0) -> Tuple[Any, Any, Any, Any]:
    """(out, probabilities, lse, scores before the bias) in fp64, of (batch, heads, tokens,
    element)."""
    q, k, v = (numpy.asarray(x).astype(numpy.float64) for x in (Q, K, V))
    share = q.shape[1] // k.shape[1]
    k, v = (numpy.repeat(x, share, axis=1) for x in (k, v))
    scores = scale * (q @ k.transpose(0, 1, 3, 2))
    if soft_cap:
        scores = soft_cap * numpy.tanh(scores / soft_cap)
    shifted = scores if bias is None else scores + numpy.asarray(bias).astype(numpy.float64)
    rows, columns = numpy.arange(q.shape[2])[:, None], numpy.arange(k.shape[2])
    word = word_of(MASKS, mask_type, "mask_type")
    if word in ("top_left", "bottom_right"):
        offset = k.shape[2] - q.shape[2] if word == "bottom_right" else 0
        shifted = numpy.where(columns <= rows + offset, shifted, -numpy.inf)
    elif word == "generic":
        raise Error("the reference knows the masks no, top_left and bottom_right")
    most = numpy.max(shifted, axis=-1, keepdims=True)
    most = numpy.where(numpy.isfinite(most), most, 0.0)
    weights = numpy.exp(shifted - most)
    total = weights.sum(axis=-1, keepdims=True)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        p = numpy.where(total > 0, weights / total, 0.0)
        lse = (numpy.log(total) + most)[..., 0]
    return p @ v, p, lse, scores

