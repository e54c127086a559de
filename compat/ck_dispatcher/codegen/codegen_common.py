"""What the generators share: tiles, traits, words of types and layouts, the values of a target."""
from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from vector_sizes import (ELEMENT_BYTES, _native_ab_vector_size,  # noqa: F401
                          gemm_contiguous_dims, gemm_native_vector_sizes,
                          gemm_problem_vector_sizes)

log = logging.getLogger(__name__)

ANY_INT = -1
ANY = "*"
_VEC_ELEMENT_BYTES = ELEMENT_BYTES


def normalize_gfx_arch(arch: str) -> str:
    """"gfx950:sramecc+:xnack-" is gfx950; what is no target stays as it is."""
    return arch.partition(":")[0]


@dataclasses.dataclass(frozen=True)
class TileConfig:
    """warp_*: waves of a block; warp_tile_*: one matrix instruction."""

    tile_m: int
    tile_n: int
    tile_k: int
    warp_m: int
    warp_n: int
    warp_k: int
    warp_tile_m: int
    warp_tile_n: int
    warp_tile_k: int

    def is_valid(self) -> bool:
        """Whether every size divides into whole warp tiles of all waves."""
        return all(min(tile, wave, warp) > 0 and tile % (wave * warp) == 0 for tile, wave, warp in (
            (self.tile_m, self.warp_m, self.warp_tile_m),
            (self.tile_n, self.warp_n, self.warp_tile_n),
            (self.tile_k, self.warp_k, self.warp_tile_k)))


@dataclasses.dataclass(unsafe_hash=True)
class TraitConfigBase:
    """pipeline and scheduler; pad_m, pad_n and pad_k, which change nothing here."""

    pipeline: str
    epilogue: str
    scheduler: str
    pad_m: bool = True
    pad_n: bool = True
    pad_k: bool = True

    def is_valid(self) -> bool:
        """interwave is for the pipelines mem and basic_v1."""
        return self.scheduler != "interwave" or self.pipeline in ("mem", "basic_v1")


@dataclasses.dataclass(frozen=True)
class KernelConfig:
    """One kernel of a set, by Tessera's name and by the original's fields."""

    name: str
    file_name: str
    tile: TileConfig
    trait: TraitConfigBase
    variant: str = "standard"
    elementwise_op: str = ""
    num_d_tensors: int = 0


def config_of(kernel: str) -> KernelConfig:
    """The original's fields of a kernel, by its lossless name."""
    spec = _gemm.spec_of(kernel)
    signature, how = spec["signature"], spec["algorithm"]
    operation, num_d = _gemm.operation_of(signature["epilogue"])
    tile = TileConfig(*_gemm.numbers(how["tile"]), *_gemm.numbers(how["wave"]),
                      *_gemm.numbers(how["warp_tile"]))
    trait = TraitConfigBase(how["pipeline"], how["store"], how["scheduler"])
    variant = "preshuffle" if signature["preshuffle"] else "multi_d" if operation else "standard"
    return KernelConfig(kernel, _gemm.file_name(spec), tile, trait, variant, operation, num_d)


class CommonTypeMappings:
    """The original's words, and what stands for them in C++ and in kernels' names."""

    DTYPE_TO_CK = {"fp16": "fp16_t", "bf16": "bf16_t", "fp32": "float", "fp8": "fp8_t",
                   "bf8": "bf8_t", "int8": "int8_t", "int32": "int32_t"}
    DTYPE_TO_CK_QUALIFIED = {word: name if name == "float" else f"ck_tile::{name}"
                             for word, name in DTYPE_TO_CK.items()}
    DTYPE_TO_DISPATCHER = {word: f"DataType::{word.upper()}" for word in DTYPE_TO_CK}
    LAYOUT_TO_CK = {"r": "tensor_layout::gemm::RowMajor", "c": "tensor_layout::gemm::ColumnMajor"}
    GEMM_LAYOUT_TO_CK = {
        "rcr": ("RowMajor", "ColumnMajor", "RowMajor"), "rrr": ("RowMajor",) * 3,
        "crr": ("ColumnMajor", "RowMajor", "RowMajor"),
        "ccr": ("ColumnMajor", "ColumnMajor", "RowMajor")}
    PIPELINE_TO_CK = {"mem": "GemmPipelineAgBgCrMem", "compv3": "GemmPipelineAgBgCrCompV3",
                      "compv4": "GemmPipelineAgBgCrCompV4", "compv5": "GemmPipelineAgBgCrCompV5",
                      "preshufflev2": "WeightPreshufflePipelineAGmemBGmemCRegV2"}
    PIPELINE_TO_BASE = {word: name.replace("GemmPipeline", "BaseGemmPipeline").replace(
        "WeightPreshuffle", "BaseWeightPreshuffle") for word, name in PIPELINE_TO_CK.items()}
    PIPELINE_TO_DISPATCHER = {"mem": "Pipeline::Mem", "compv3": "Pipeline::CompV3",
                              "compv4": "Pipeline::CompV4", "compv5": "Pipeline::CompV5",
                              "preshufflev2": "Pipeline::PreShuffleV2"}
    SCHEDULER_TO_CK = {"intrawave": "GemmPipelineScheduler::Intrawave",
                       "interwave": "GemmPipelineScheduler::Interwave",
                       "default": "GemmPipelineScheduler::Default"}
    SCHEDULER_TO_DISPATCHER = {"intrawave": "Scheduler::Intrawave",
                               "interwave": "Scheduler::Interwave", "default": "Scheduler::Auto"}
    EPILOGUE_TO_DISPATCHER = {"cshuffle": "Epilogue::CShuffle", "default": "Epilogue::Default"}

    # The types for which targets list warp tiles.
    ARCH_VALIDATION_DTYPES = ("fp16", "bf16", "fp32", "fp8", "bf8", "int8")

    @classmethod
    def get_arch_dtype_triple(cls, dtype: str) -> Tuple[str, str, str]:
        """The types of A, B and sums, under which targets list warp tiles. Raises ValueError for
        another type."""
        if dtype not in cls.ARCH_VALIDATION_DTYPES:
            raise ValueError(f"targets have no rules for '{dtype}'; there are those for "
                             f"{', '.join(cls.ARCH_VALIDATION_DTYPES)}")
        return dtype, dtype, cls.get_acc_dtype(dtype)

    @staticmethod
    def get_output_dtype(dtype: str) -> str:
        return _gemm.default_output(dtype)

    @staticmethod
    def get_acc_dtype(dtype: str) -> str:
        return "int32" if dtype == "int8" else "fp32"


def parallel_generate(generate_fn: Callable[[Any], Any], items: Iterable[Any],
                      parallel: bool = True, max_workers: Optional[int] = None) -> List[Any]:
    """The results of a function, in the order in which they were done. What it raises is raised
    after the others have ended."""
    work = list(items)
    results: List[Any] = []
    if not parallel or len(work) < 2:
        for item in work:
            results.append(generate_fn(item))
            _log_one(item, len(results), len(work))
        return results
    with concurrent.futures.ThreadPoolExecutor(max_workers) as pool:
        pending = {pool.submit(generate_fn, item): item for item in work}
        for done in concurrent.futures.as_completed(pending):
            results.append(done.result())
            _log_one(pending[done], len(results), len(work))
    return results


def _log_one(item: Any, done: int, count: int) -> None:
    """Names the kernel that was generated."""
    name = getattr(item, "name", item)
    log.info("generated %s, %d of %d", item if callable(name) else name, done, count)


def generate_cpp_compilation_unit(name: str) -> str:
    """A source that compiles one generated header."""
    return f"// Compiles {name}.hpp by itself.\n#include \"{name}.hpp\"\n"


REGISTRATION = """// Registers the kernels of this folder.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>

#include <ck_tile/dispatcher/{header}.hpp>

namespace ck_tile::dispatcher {{
{functions}
}}  // namespace ck_tile::dispatcher
"""
FUNCTION = """
inline std::size_t {register}(
    const std::string& gfx_arch = "{target}", Priority priority = Priority::Normal,
    {prefix}Registry& registry = {prefix}Registry::instance()) {{
  std::size_t count = 0;
  for (const char* name : std::initializer_list<const char*>{{{names}}}) {{
    const auto kernel = backends::named_{word}_kernel(name, gfx_arch);
    count += registry.register_kernel(kernel->{key}(), kernel, priority) ? 1 : 0;
  }}
  return count;
}}
inline std::size_t {counts}() {{ return {count}; }}
"""


def registration(header: str, prefix: str, functions: Dict[Any, Iterable[str]], target: str) -> str:
    """A header that registers kernels. functions: by the names of the function that registers and
    of the one that counts. prefix: of the operation's types."""
    made = [FUNCTION.format(
        register=register, counts=counts, prefix=prefix, target=target, count=len(list(kernels)),
        word="conv" if prefix else "gemm", key="key" if prefix else "get_key",
        names="".join(f'\n           "{kernel}",' for kernel in sorted(kernels)))
        for (register, counts), kernels in functions.items()]
    return REGISTRATION.format(header=header, functions="".join(made))


def _space(arch: Optional[str]) -> Dict[str, Any]:
    return _targets.original_space(arch, "gemm")


def valid_wave_configs(arch: Optional[str] = None) -> List[List[int]]:
    """The grids of waves that a target's row lists; [[2, 2, 1]] for a target without a row."""
    try:
        waves = _space(arch).get("waves", [])
    except _targets.Error:
        waves = []
    return [list(_gemm.numbers(word)) for word in waves] or [[2, 2, 1]]


def valid_warp_configs(arch: Optional[str] = None, dtype: str = "fp16") -> List[List[int]]:
    """The warp tiles that a target's row lists; [[32, 32, 16]] for a target without a row."""
    try:
        tiles = _space(arch).get("warp_tiles", {}).get(dtype, [])
    except _targets.Error:
        tiles = []
    return [list(_gemm.numbers(word)) for word in tiles] or [[32, 32, 16]]


def valid_trait_configs() -> List[Tuple[str, str]]:
    """The pairs of pipeline and scheduler that go together."""
    return [(pipeline, scheduler) for pipeline in ("compv3", "compv4", "compv5", "mem")
            for scheduler in ("intrawave", "interwave")
            if TraitConfigBase(pipeline, "cshuffle", scheduler).is_valid()]


def _is_any(config: Any, names: Sequence[str], wildcard: Any) -> bool:
    read = config.get if isinstance(config, dict) else lambda name: getattr(config, name, None)
    return any(read(name) == wildcard for name in names)


def needs_wave_expansion(config: Any) -> bool:
    """Whether a wave size is ANY_INT."""
    return _is_any(config, ("wave_m", "wave_n", "wave_k"), ANY_INT)


def needs_warp_expansion(config: Any) -> bool:
    return _is_any(config, ("warp_m", "warp_n", "warp_k"), ANY_INT)


def needs_pipeline_expansion(config: Any) -> bool:
    return _is_any(config, ("pipeline",), ANY)
