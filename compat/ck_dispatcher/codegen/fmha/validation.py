"""The rules of the original for kernels of attention on the targets that it documents.

They say what the original's generator takes. What Tessera has kernels for, on these and on other
targets, says fmha_utils.validate_fmha_config().
"""
from __future__ import annotations

import dataclasses
import enum
import functools
import json
import pathlib
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import _paths  # noqa: E402,F401

from fmha.symbol_map import (BWD_DTYPE_MAP, FAMILIES, FWD_DTYPE_MAP, canonical_bias,  # noqa: E402
                             canonical_qscale)

SPECS = pathlib.Path(__file__).resolve().parent / "fmha_arch_specs.json"
BACKWARD = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
V3 = ("v3", "qr_async_trload_v3")


@functools.lru_cache(maxsize=None)
def _read() -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(SPECS.read_text(encoding="ascii"))
    return found


def load_arch_specs() -> Dict[str, Any]:
    """A copy of fmha_arch_specs.json, which a caller may change and pass to validate_config()."""
    return json.loads(json.dumps(_read()))


def save_arch_specs(specs: Dict[str, Any], file: Any = SPECS) -> None:
    """Writes specs as a file that load_arch_specs() reads."""
    pathlib.Path(file).write_text(json.dumps(specs, indent=2) + "\n", encoding="ascii")
    _read.cache_clear()


ARCH_METADATA = _read()["architectures"]
ARCH_DTYPES = {arch: row["supported_dtypes"] for arch, row in ARCH_METADATA.items()}


@dataclasses.dataclass
class ValidationResult:
    valid: bool = True
    errors: List[str] = dataclasses.field(default_factory=list)
    warnings: List[str] = dataclasses.field(default_factory=list)

    def add_error(self, msg: str) -> None:
        self.valid = False
        self.errors.append(msg)

    def add_warning(self, msg: str) -> None:
        self.warnings.append(msg)


class Case:
    """One configuration while it is checked: its parts by short names, and what was found."""

    def __init__(self, config: Dict[str, Any], specs: Dict[str, Any]) -> None:
        self.signature, self.algorithm = config["signature"], config["algorithm"]
        self.arch, self.specs = config["arch"], specs
        self.row = specs["architectures"].get(self.arch, {})
        self.family, self.pipeline = self.signature["family"], self.algorithm["pipeline"]
        self.dtype, self.hdims = self.signature["data_type"], (self.signature["hdim_q"],
                                                               self.signature["hdim_v"])
        self.tile = self.algorithm["tile"]
        self.result = ValidationResult()

    def need(self, holds: Any, sentence: str) -> None:
        if not holds:
            self.result.add_error(sentence)

    def is_mode(self, *modes: str) -> bool:
        return self.signature.get("mode", "batch") in modes

    def is_rowwise(self) -> bool:
        return self.signature.get("vlayout", "r") == "r"


def validate_config(config: Dict[str, Any], arch_specs: Optional[Dict[str, Any]] = None
                    ) -> ValidationResult:
    """Every rule that a configuration breaks. config: {"arch", "signature", "algorithm"}; one that
    lacks a part breaks the rule that it is there."""
    lacking = _lacking(config)
    if lacking:
        return ValidationResult(False, [f"the configuration has no '{each}'" for each in lacking])
    case = Case(config, arch_specs or _read())
    if not case.row:
        case.need(False, f"there is no target architecture '{case.arch}'; there are "
                         f"{', '.join(case.specs['architectures'])}")
        return case.result
    for rule in (_words, _head_dimensions, _shapes, _instructions):
        rule(case)
    _OF_FAMILY.get(case.family, lambda case: None)(case)
    return case.result


_PARTS = {"signature": ("family", "data_type", "hdim_q", "hdim_v", "bias"),
          "algorithm": ("pipeline", "tile", "wave", "warp", "block_per_cu", "num_wave_groups")}


def _lacking(config: Dict[str, Any]) -> List[str]:
    """What the rules read and a configuration does not say."""
    found = ["arch"] if "arch" not in config else []
    for part, names in _PARTS.items():
        if part not in config:
            found.append(part)
        else:
            found += [f"{part}.{name}" for name in names if name not in config[part]]
    return found


def _words(case: Case) -> None:
    """Family, type and pipeline are words that the target knows."""
    case.need(case.family in FAMILIES,
              f"there is no family '{case.family}'; there are {', '.join(FAMILIES)}")
    case.need(case.dtype in case.row["supported_dtypes"],
              f"dtype {case.dtype} is none of {case.arch}'s, "
              f"{', '.join(case.row['supported_dtypes'])}")
    known = BWD_DTYPE_MAP if case.family.startswith("bwd") else FWD_DTYPE_MAP
    case.need(case.dtype in known,
              f"{case.family} has no dtype {case.dtype}; it has {', '.join(known)}")
    case.need(case.family == "fwd_splitkv_combine" or
              case.pipeline in case.row["supported_pipelines"],
              f"pipeline {case.pipeline} is none of {case.arch}'s, "
              f"{', '.join(case.row['supported_pipelines'])}")
    if case.pipeline in V3 and not case.row["supports_v3"]:
        case.result.add_warning(f"pipeline {case.pipeline} asks for supports_v3, which {case.arch} "
                                "has not")
    case.need(case.pipeline != "qr_async_trload" or case.row["supports_trload"],
              f"qr_async_trload asks for transposing loads, which {case.arch} has not")


def _head_dimensions(case: Case) -> None:
    rules, bias = case.specs["global_rules"], canonical_bias(case.signature["bias"])
    step = rules.get("hdim_divisible_by", 8)
    case.need(all(size % step == 0 for size in case.hdims),
              f"head dimensions must be multiples of {step}, got {case.hdims[0]} and "
              f"{case.hdims[1]}")
    if rules.get("hdim_192_128_no_bias_dropout") and case.hdims == (192, 128) and (
            bias != "no" or case.signature.get("dropout", False)):
        case.result.add_warning("head dimensions (192,128) have few tiles with bias or dropout")
    if rules.get("logits_requires_no_bias"):
        case.need(bias == "no" or not case.signature.get("logits", False),
                  f"logits_soft_cap goes with no bias, and the bias is {bias}")
    if case.pipeline in ("qr_async_trload", *V3):
        case.need(case.hdims in ((64, 64), (128, 128)),
                  f"{case.pipeline} is for head dimensions of 64 or 128 that are equal, got "
                  f"{case.hdims[0]} and {case.hdims[1]}")


def _shapes(case: Case) -> None:
    how = case.algorithm
    count = 9 if case.family == "bwd_dq_dk_dv" else 6
    found = (len(case.tile), len(how["wave"]), len(how["warp"]))
    case.need(found == (count, 9, 9), f"tile, wave and warp of {case.family} have {count}, 9 and 9 "
                                      f"numbers, got {found[0]}, {found[1]} and {found[2]}")
    case.need(how["block_per_cu"] > 0 or how["block_per_cu"] == -1,
              f"block_per_cu is positive, or -1 for any, got {how['block_per_cu']}")
    case.need(how["num_wave_groups"] > 0,
              f"num_wave_groups is positive, got {how['num_wave_groups']}")


def _instructions(case: Case) -> None:
    """A wave's matrix instructions come in eights in the pipeline qr with heads of 256 on CDNA."""
    is_cdna = case.row["family"].startswith("cdna")
    if (case.pipeline, case.hdims[0]) != ("qr", 256) or not is_cdna:
        return
    if case.family in ("bwd_dot_do_o", "bwd_convert_dq") or not case.result.valid:
        return
    warp, wave = case.algorithm["warp"][:3], case.algorithm["wave"][:2]
    if min(*warp, *wave) <= 0:
        return
    count = 1
    for size, step in zip(case.tile, warp):
        count *= size // step
    count //= wave[0] * wave[1]
    case.need(count % 8 == 0, f"a wave issues {count} matrix instructions, and qr with heads of "
                              "256 asks for a multiple of 8")


def _batch_prefill(case: Case) -> None:
    signature, page = case.signature, case.signature.get("page_size", 0)
    case.need(case.is_rowwise(), "batch_prefill takes a row-major V alone")
    case.need(signature.get("paged_kv", False), "batch_prefill asks for paged_kv")
    case.need(page > 0 and page & (page - 1) == 0,
              f"page_size of batch_prefill is a power of two, got {page}")
    case.need(case.is_mode("group"), "batch_prefill is for group mode alone")
    case.need(case.pipeline == "qr_async",
              f"batch_prefill runs in the pipeline qr_async, got {case.pipeline}")
    queries, keys = (signature.get(f"{name}_data_type", case.dtype) for name in ("q", "kv"))
    case.need(queries == keys, f"batch_prefill has no mixed activation/FP8-KV dtype contract: "
                               f"queries are {queries} and keys {keys}")


def _append(case: Case) -> None:
    case.need(case.is_mode("batch"), "fwd_appendkv is for batch mode alone")
    case.need(case.pipeline == "appendkv",
              f"fwd_appendkv runs in the appendkv pipeline, got {case.pipeline}")
    case.need(case.is_rowwise(), "fwd_appendkv takes a row-major V alone")


def _combine(case: Case) -> None:
    wanted = case.specs.get("splitkv_combine", {}).get("combine_bn1", 32)
    case.need(case.is_mode("batch", "group"), "fwd_splitkv_combine is for batch or group mode")
    if len(case.tile) > 3:
        case.need(case.tile[3] == wanted,
                  f"fwd_splitkv_combine asks for bn1 = {wanted}, got {case.tile[3]}")
        case.need(case.tile[3] > 0 and case.hdims[1] % case.tile[3] == 0,
                  f"fwd_splitkv_combine asks for an hdim_v that divides by bn1, got "
                  f"{case.hdims[1]} and {case.tile[3]}")


def _paged(case: Case) -> None:
    case.need(case.pipeline == "qr_pagedkv",
              f"fwd_pagedkv runs in the pipeline qr_pagedkv, got {case.pipeline}")
    case.need(case.signature.get("paged_kv", False), "fwd_pagedkv asks for paged_kv")
    case.need(case.is_rowwise(), "fwd_pagedkv takes a row-major V alone")


def _split(case: Case) -> None:
    case.need(case.pipeline in ("qr", "qr_nwarp_sshuffle"),
              f"fwd_splitkv runs in the pipelines qr and qr_nwarp_sshuffle, got {case.pipeline}")
    case.need(case.is_rowwise(), "fwd_splitkv takes a row-major V alone")


def _forward(case: Case) -> None:
    if not case.is_rowwise():
        case.result.add_warning("the original's examples of fwd take V row-major")


_OF_FAMILY: Dict[str, Callable[[Case], None]] = {
    "batch_prefill": _batch_prefill, "fwd_appendkv": _append, "fwd_splitkv_combine": _combine,
    "fwd_pagedkv": _paged, "fwd_splitkv": _split, "fwd": _forward}


# ---- Receipts and profiles -----------------------------------------------------------------------

class Receipt(enum.IntEnum):
    CK_DEFAULT = 0
    CK_EXTENDED = 1
    FLASH_FWD = 2
    FLASH_BWD = 3
    PYTORCH = 4
    AITER_BATCH = 100
    AITER_GROUP = 200
    AITER_BWD_BATCH = 300
    AITER_BWD_GROUP = 400
    AITER_CPP = 600
    FP32_ALL = 800
    FP32_MIN = 801
    FP8_TEST = 888


PROFILE_ALIASES = {str(receipt.value): receipt.name.lower() for receipt in Receipt}
_HALVES = ("fp16", "bf16")
_AITER = (*_HALVES, "fp8bf16")

# What each profile takes: the words that a field of the signature may have, and what must be off.
# A field behind a function is read in its one spelling.
_TAKES: Dict[str, Tuple[Dict[str, Any], Tuple[str, ...]]] = {
    "flash_fwd": ({"family": ("fwd", "fwd_splitkv", "fwd_appendkv", "fwd_pagedkv"),
                   "data_type": _HALVES, "vlayout": "r", "bias": ("no", "alibi"),
                   "qscale": ("no",)}, ("skip_min_seqlen_q",)),
    "flash_bwd": ({"family": BACKWARD, "data_type": _HALVES}, ()),
    "pytorch": ({"data_type": _HALVES, "vlayout": "r", "bias": ("no", "bias"), "qscale": ("no",)},
                ("skip_min_seqlen_q", "logits", "sink")),
    "aiter_batch": ({"data_type": _AITER, "mode": ("batch",), "vlayout": "r"}, ()),
    "aiter_group": ({"data_type": _AITER, "mode": ("group",), "vlayout": "r"}, ()),
    "aiter_bwd_batch": ({"family": BACKWARD, "data_type": _HALVES, "mode": ("batch",)}, ()),
    "aiter_bwd_group": ({"family": BACKWARD, "data_type": _HALVES, "mode": ("group",)}, ()),
    "aiter_cpp": ({"data_type": _AITER, "vlayout": "r"}, ()),
    "fp32_all": ({"data_type": ("fp32",)}, ("skip_min_seqlen_q", "logits")),
    "fp32_min": ({"data_type": ("fp32",), "mode": ("batch",), "hdim_q": (48, 128),
                  "hdim_v": (48, 128), "bias": ("no",), "qscale": ("no",)}, ("lse", "dropout")),
    "fp8_test": ({"data_type": ("fp8bf16", "fp8fp32"), "hdim_q": (128, 192), "vlayout": "r"}, ()),
    "all": ({}, ())}
_SPELLED: Dict[str, Callable[[str], str]] = {"bias": canonical_bias, "qscale": canonical_qscale}


def _takes(name: str, config: Dict[str, Any]) -> bool:
    signature = config["signature"]
    if name in ("ck_default", "ck_extended"):
        return bool(signature["data_type"] != "fp32")
    words, off = _TAKES[name]
    if name in ("aiter_batch", "aiter_cpp") and signature["data_type"] == "fp8bf16":
        words = {**words, "hdim_q": (128, 192)}
    return all(_SPELLED.get(field, lambda word: word)(signature[field]) in allowed
               for field, allowed in words.items()) and not any(
        signature.get(field, False) for field in off)


@dataclasses.dataclass(frozen=True)
class FmhaProfile:
    name: str

    def allows(self, config: Dict[str, Any]) -> bool:
        return _takes(self.name, config)


PROFILES = {name: FmhaProfile(name) for name in ("ck_default", "ck_extended", *_TAKES)}


def normalize_profile(profile: Any = None, receipt: Any = None) -> str:
    """A profile's name, by itself or by the number of its receipt."""
    given = profile or (receipt if receipt is not None else "ck_default")
    return PROFILE_ALIASES.get(str(given), str(given))


def get_profile(profile: Any = None, receipt: Any = None) -> FmhaProfile:
    name = normalize_profile(profile, receipt)
    if name not in PROFILES:
        raise KeyError(f"there is no profile '{name}'; there are {', '.join(PROFILES)}")
    return PROFILES[name]


def profile_allows(config: Dict[str, Any], profile: Any = None, receipt: Any = None) -> bool:
    return get_profile(profile, receipt).allows(config)
