"""Configurations of attention as the original's generator has them: signature and algorithm."""
from __future__ import annotations

import pathlib
import sys
from typing import Any, Dict, List

from . import fmha

SIGNATURE = ("family", "data_type", "mode", "vlayout", "hdim_q", "hdim_v", "lse", "dropout",
             "qscale", "rope", "logits", "paged_kv", "skip_min_seqlen_q", "sink", "dbias",
             "deterministic", "kv_memory_layout", "kv_lookup_table", "page_size")
ALGORITHM = ("pipeline", "use_trload", "block_per_cu", "num_wave_groups")
# What the original's generator asks for and a configuration has no field for.
_FIXED = {"fp8_static_quant": False, "store_randval": False}
_FIXED_ALGORITHM = {"max_splits_log2": 0, "max_seq_len_q": 0, "selection_rank": 0,
                    "constraint_tag": ""}


def parts_of(config: Any) -> Dict[str, Any]:
    """{"arch", "signature", "algorithm"} of an FmhaKernelConfig."""
    signature = {name: getattr(config, name) for name in SIGNATURE}
    signature.update(_FIXED, mask=fmha.word_of(fmha.MASKS, config.mask, "mask"),
                     bias=_bias_word(config.bias))
    how = {name: getattr(config, name) for name in ALGORITHM}
    how.update(_FIXED_ALGORITHM, tile=list(config.tile), wave=list(config.wave),
               warp=list(config.warp), padding=list(config.padding),
               hdim_q_alignment=config.hdim_q, hdim_v_alignment=config.hdim_v)
    return {"arch": config.gfx_arch or config.target().name, "signature": signature,
            "algorithm": how}


def _bias_word(given: Any) -> str:
    word = fmha.word_of(fmha.BIASES, given, "bias")
    return "bias" if word == "elementwise" else word


def fields_of(parts: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of FmhaKernelConfig; parts_of() backwards."""
    signature, how = parts["signature"], parts["algorithm"]
    fields = {name: signature[name] for name in (*SIGNATURE, "mask", "bias") if name in signature}
    fields.update({name: how[name] for name in ALGORITHM if name in how}, gfx_arch=parts["arch"])
    fields.update(zip(("tile_m0", "tile_n0", "tile_k0", "tile_n1", "tile_k1", "tile_k0max"),
                      how["tile"]))
    for key in ("wave", "warp"):
        fields.update(zip((f"{key}_{axis}{stage}" for stage in range(3) for axis in "mnk"),
                          how[key]))
    fields.update(zip(("pad_s", "pad_sk", "pad_d", "pad_dv"), map(int, how.get("padding", []))))
    return fields


def rules() -> Any:
    """The module codegen/fmha/validation.py."""
    folder = str(pathlib.Path(__file__).resolve().parents[2] / "codegen")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import fmha.validation as found
    return found


def original_errors(config: Any) -> List[str]:
    """What the original's rules say against a configuration for one of its targets; [] for other
    targets, and for the family bwd, which the original's generator knows by its stages."""
    known, parts = rules(), parts_of(config)
    if parts["arch"] not in known.ARCH_METADATA or config.family not in known.FAMILIES:
        return []
    errors: List[str] = known.validate_config(parts).errors
    return errors
