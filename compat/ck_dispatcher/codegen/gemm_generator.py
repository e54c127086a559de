"""The classes of unified_gemm_codegen: variants, configurations, what generates one and all."""
from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import json
import pathlib
from typing import Any, Dict, List, Optional, Sequence

import _paths  # noqa: F401
import tessera
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets
from tessera_ck.codegen_runner import CodegenResult, generate

import arch_specs_generated as _specs
import gemm_utils
from arch_filter import ArchFilter
from codegen_common import (CommonTypeMappings, TileConfig, TraitConfigBase, config_of,
                            normalize_gfx_arch)


class GemmVariant(enum.Enum):
    STANDARD = "standard"
    PRESHUFFLE = "preshuffle"
    MULTI_D = "multi_d"
    BATCHED = "batched"
    MULTI_ABD = "multi_abd"
    GROUPED = "grouped"
    STREAM_K = "stream_k"


# Variants whose products are launches of plain kernels.
_PLAIN = ("batched", "grouped")


def kernels_of(variant: str) -> str:
    """The variant of whose kernels a variant's products are."""
    return "standard" if variant in _PLAIN else variant


@dataclasses.dataclass
class TraitConfig(TraitConfigBase):
    persistent: bool = False

    __hash__ = TraitConfigBase.__hash__


@dataclasses.dataclass
class KernelConfig:
    """What a generator is asked for, by the original's fields. block_size, k_block_per_cu,
    num_wave_groups and d_layout change nothing: kernels decide them."""

    tile: TileConfig
    trait: TraitConfig
    variant: GemmVariant = GemmVariant.STANDARD
    preshuffle: bool = False
    elementwise_op: str = "PassThrough"
    num_d_tensors: int = 0
    d_layout: str = "r"
    reduction_strategy: str = "atomic"
    num_a_tensors: int = 2
    num_b_tensors: int = 2
    a_elementwise_op: str = "PassThrough"
    b_elementwise_op: str = "PassThrough"
    cde_elementwise_op: str = "PassThrough"
    block_size: int = 256
    k_block_per_cu: int = 1
    num_wave_groups: int = 1

    def described(self, datatype: str, layout: str, gpu_target: Optional[str] = None
                  ) -> gemm_utils.GemmKernelConfig:
        """The same as a configuration of gemm_utils."""
        variant = "preshuffle" if self.preshuffle else kernels_of(self.variant.value)
        shared = {name: getattr(self, name) for name in (
            "elementwise_op", "num_d_tensors", "reduction_strategy", "num_a_tensors",
            "num_b_tensors", "a_elementwise_op", "b_elementwise_op", "cde_elementwise_op")}
        return gemm_utils.GemmKernelConfig(
            dtype=datatype, layout=layout, variant=variant, gfx_arch=gpu_target, **shared,
            **dataclasses.asdict(self.tile), **dataclasses.asdict(self.trait))

    def key_name(self, datatype: str, layout: str) -> str:
        """Lossless, for this machine's target; see GemmKernelConfig.name."""
        return self.described(datatype, layout).name

    def name(self, datatype: str, layout: str) -> str:
        return f"ck_tile_{self.key_name(datatype, layout)}"


class CKTileKernelGenerator:
    """Emits one kernel: Tessera's source, in which no word of CK's templates is."""

    def __init__(self, datatype: str, layout: str, gpu_target: str = "gfx942") -> None:
        self.datatype, self.layout = datatype, layout
        self.target = _targets.resolve(gpu_target)

    def generate(self, config: KernelConfig) -> str:
        """Raises Error with the rule that the configuration breaks."""
        asked = config.described(self.datatype, self.layout, self.target.name).to_ctypes_config()
        wish = _gemm.wish_of(asked, self.target)
        if not wish.kernels:
            raise tessera.Error("; ".join(wish.corrections), "illegal_spec")
        shown = tessera.command("show", kernel=wish.kernels[0], target=self.target.word,
                                source=True)
        return f"// {wish.kernels[0]}\n{shown['source']}"


def _checked_type(datatype: str) -> str:
    """Raises ValueError for a type that has no rules."""
    CommonTypeMappings.get_arch_dtype_triple(datatype)
    return datatype


class UnifiedGemmCodegen:
    """Generates the kernels of variants into a folder. Without a file of tiles and traits, these
    are those of the shipped kernels."""

    def __init__(self, output_dir: Any, datatype: str, layout: str, gpu_target: str = "gfx942",
                 config_file: Optional[Any] = None,
                 variants: Optional[Sequence[GemmVariant]] = None,
                 use_preselected: Optional[str] = None, enable_arch_filter: bool = True,
                 kernel_set_name: Optional[str] = None) -> None:
        self.datatype, self.layout = _checked_type(datatype), layout[:3]
        self.d_layout = layout[3:4] or layout[2]
        self.gpu_target = normalize_gfx_arch(gpu_target)
        self.target = _targets.resolve(self.gpu_target)
        self.output_dir = pathlib.Path(output_dir) / (kernel_set_name or "")
        self.variants = list(variants or [GemmVariant.STANDARD])
        self.use_preselected = use_preselected
        self.config = {} if config_file is None else json.loads(
            pathlib.Path(config_file).read_text(encoding="utf-8"))
        self.arch_filter: Any = ArchFilter(self.gpu_target) if enable_arch_filter else None

    @functools.cached_property
    def _shipped(self) -> List[Any]:
        """The shipped kernels by the original's fields."""
        return [config_of(name) for name in _gemm.variant_kernels(
            self.target, self.datatype, self.layout, "standard")]

    def _product(self, part: str, kind: Any) -> List[Any]:
        """All values of a part of the configuration; what it leaves out has its usual value."""
        usual = gemm_utils.GemmKernelConfig()
        names = [field.name for field in dataclasses.fields(kind)]
        given = self.config.get(part, {})
        ranges = [gemm_utils._listed(given.get(name, getattr(usual, name))) for name in names]
        return [kind(**dict(zip(names, values))) for values in itertools.product(*ranges)]

    def _get_tile_configs(self) -> List[TileConfig]:
        if self.config:
            return [tile for tile in self._product("tile_config", TileConfig) if tile.is_valid()]
        return list(dict.fromkeys(each.tile for each in self._shipped))

    def _get_trait_configs(self) -> List[TraitConfig]:
        if self.config:
            return [trait for trait in self._product("trait_config", TraitConfig)
                    if trait.is_valid()]
        return list(dict.fromkeys(TraitConfig(**dataclasses.asdict(each.trait))
                                  for each in self._shipped))

    def _is_tile_arch_valid(self, tile: TileConfig, variant: Optional[GemmVariant] = None,
                            trait: Optional[TraitConfig] = None) -> bool:
        """Whether the target lists warp tiles for the type, and its rules let the tile be."""
        if self.arch_filter is None:
            return True
        if not _specs.get_warp_tile_combos(self.gpu_target, "_".join(
                CommonTypeMappings.get_arch_dtype_triple(self.datatype))):
            return False
        how = {} if trait is None else {"pipeline": trait.pipeline, "epilogue": trait.epilogue,
                                        "scheduler": trait.scheduler}
        return bool(self.arch_filter.is_kernel_valid(
            datatype_a=self.datatype, datatype_b=self.datatype,
            datatype_c=_gemm.default_output(self.datatype), layout=self.layout,
            **dataclasses.asdict(tile), **how))

    def _further(self, variant: GemmVariant) -> List[Dict[str, Any]]:
        """What a variant's kernels differ in besides tiles and traits."""
        usual = {"elementwise_op": ["MultiDAdd"], "num_d_tensors": [1]}
        ranges: Dict[str, List[Any]] = dict(usual) if variant is GemmVariant.MULTI_D else {}
        for part, fields in gemm_utils._PARTS.get(variant.value, {}).items():
            ranges.update((field, gemm_utils._listed(self.config[part][key]))
                          for key, field in fields.items() if key in self.config.get(part, {}))
        return [dict(zip(ranges, values)) for values in itertools.product(*ranges.values())]

    def _get_configs_for_variant(self, variant: GemmVariant) -> List[KernelConfig]:
        further = self._further(variant)
        return [KernelConfig(tile, trait, variant, variant is GemmVariant.PRESHUFFLE, **more)
                for tile, trait in itertools.product(self._get_tile_configs(),
                                                     self._get_trait_configs())
                if self._is_tile_arch_valid(tile, variant, trait) for more in further]

    def _generate(self, what: str, names: Sequence[str], jobs: Optional[int]) -> CodegenResult:
        return generate(self.output_dir, what, _gemm.file_name,
                        kernel=list(names) or ["no_legal_kernel"], target=self.target.word,
                        jobs=jobs)

    def _names(self, variant: GemmVariant) -> List[str]:
        found: Dict[str, None] = {}
        for config in self._get_configs_for_variant(variant):
            asked = config.described(self.datatype, self.layout, self.gpu_target)
            found.update(dict.fromkeys(
                _gemm.wish_of(asked.to_ctypes_config(), self.target).kernels))
        return list(found)

    def generate_all(self, parallel: bool = True) -> Dict[str, List[str]]:
        """{"kernels", "wrappers": files that were written, "failed": a sentence for each}"""
        from unified_gemm_codegen import write_wrappers
        jobs = None if parallel else 1
        if self.use_preselected:
            from preselected_kernels import get_preselected_kernels
            results = [self._generate(self.use_preselected, get_preselected_kernels(
                self.use_preselected, self.gpu_target), jobs)]
        else:
            results = [self._generate(each.value, self._names(each), jobs)
                       for each in self.variants]
        if any(result.kernel_count for result in results):
            write_wrappers(self.output_dir, self.target.name, False)
        kernels = [name for result in results for name in result.instance_names]
        wrappers = self.output_dir / "dispatcher_wrappers"
        return {"kernels": [str(self.output_dir / f"{name}.hpp") for name in kernels],
                "wrappers": [str(wrappers / f"dispatcher_wrapper_{name}.hpp") for name in kernels],
                "failed": [result.stderr for result in results if not result.success]}


def show_arch_info(gpu_target: str, datatype: str) -> None:
    """Prints what a target's row lists for a type. Raises ValueError for a type without rules."""
    arch = normalize_gfx_arch(gpu_target)
    key = "_".join(CommonTypeMappings.get_arch_dtype_triple(datatype))
    print(f"\n=== Architecture Info for {arch} ===\n")
    print(f"Targets: {', '.join(_specs.get_supported_archs())}")
    for title, rows in (
            ("Wave configurations [warp_m, warp_n, warp_k]:", _specs.get_warp_configs(arch)),
            (f"Warp tile configurations for {key} [warp_tile_m, warp_tile_n, warp_tile_k]:",
             _specs.get_warp_tile_combos(arch, key)),
            ("Bytes of shared memory for the tiles of A and B, by pipeline:",
             [f"{pipeline}: {size}" for pipeline, size in sorted(
                 _specs.LDS_CAPACITY_LIMITS_BY_ARCH.get(arch, {}).items())]),
            ("Pipeline, epilogue and scheduler that do not go together:",
             sorted(_specs.TRAIT_UNSUPPORTED_COMBINATIONS))):
        print("\n" + title)
        for row in rows:
            print(f"  {row}")
    print()
