"""The classes of the original's generator of convolutions, over Tessera's kernels.

A configuration names one kernel. What is generated is Tessera's source of it under the original's
file name, and beside it a header that registers the kernel.
"""
from __future__ import annotations

import dataclasses
import enum
import pathlib
import types
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import _paths  # noqa: F401
import tessera
from tessera import Error
from tessera_ck import conv as _conv
from tessera_ck import fields as _fields
from tessera_ck import gemm as _gemm
from tessera_ck import targets as _targets

from codegen_common import (CommonTypeMappings, TileConfig, TraitConfigBase, parallel_generate,
                            registration)


class GroupedConvVariant(enum.Enum):
    FORWARD = "forward"
    BACKWARD_DATA = "bwd_data"
    BACKWARD_WEIGHT = "bwd_weight"


# Of the input, the filters and the output, by the number of dimensions.
_LAYOUTS = {1: ("NWGC", "GKXC", "NWGK"), 2: ("NHWGC", "GKYXC", "NHWGK"),
            3: ("NDHWGC", "GKZYXC", "NDHWGK")}
GroupedConvLayout = enum.Enum(  # type: ignore[misc]
    "GroupedConvLayout", {word: word for row in _LAYOUTS.values() for word in row})


class GroupedConvTypeMappings:
    """The original's words of types and layouts, and what stands for them in C++."""

    DTYPE_TO_CK = {**CommonTypeMappings.DTYPE_TO_CK, "fp16": "half_t"}
    SHORT = {GroupedConvVariant.FORWARD: "fwd", GroupedConvVariant.BACKWARD_DATA: "bwd_data",
             GroupedConvVariant.BACKWARD_WEIGHT: "bwd_weight"}

    @staticmethod
    def get_layouts(ndim_spatial: int) -> Dict[str, str]:
        if ndim_spatial not in _LAYOUTS:
            raise ValueError(f"ndim_spatial must be 1, 2 or 3, got {ndim_spatial}")
        return dict(zip(("in", "wei", "out"), _LAYOUTS[ndim_spatial]))


@dataclasses.dataclass(unsafe_hash=True)
class GroupedConvTraitConfig(TraitConfigBase):
    """The fields beyond the base's change nothing here: Tessera's kernels decide them."""

    double_smem_buffer: bool = False
    num_groups_to_merge: int = 1
    split_image: bool = False
    explicit_gemm: bool = False
    two_stage: bool = False


@dataclasses.dataclass
class GroupedConvKernelConfig:
    tile: TileConfig
    trait: GroupedConvTraitConfig
    variant: GroupedConvVariant = GroupedConvVariant.FORWARD
    ndim_spatial: int = 2
    arch: str = "gfx942"
    layout: Any = None
    vector_sizes: Tuple[int, int, int] = (4, 8, 8)
    block_per_cu: int = 1
    num_wave_groups: int = 1

    def name(self, datatype: str) -> str:
        """Everything that tells two configurations of a type apart."""
        trait, tile = self.trait, self.tile
        words = ["grouped_conv", GroupedConvTypeMappings.SHORT[self.variant], datatype,
                 str(GroupedConvTypeMappings.get_layouts(self.ndim_spatial)["in"]).lower(),
                 f"{self.ndim_spatial}d", trait.pipeline, trait.epilogue, trait.scheduler,
                 *(_fields.shape(tile, prefix) for prefix in ("tile", "warp", "warp_tile"))]
        for is_on, word in ((self.vector_sizes != (4, 8, 8),
                             "vec" + "_".join(map(str, self.vector_sizes))),
                            (trait.num_groups_to_merge != 1, f"gm{trait.num_groups_to_merge}"),
                            (trait.double_smem_buffer, "dsb"), (trait.split_image, "si"),
                            (trait.two_stage, "2stage")):
            if is_on:
                words.append(word)
        return "_".join(words)

    def is_valid_for_arch(self, arch: Optional[str] = None) -> bool:
        """Whether the target's row lists the grid of waves, and the trait is one."""
        from dispatcher_common import validate_wave_config
        wave = [self.tile.warp_m, self.tile.warp_n, self.tile.warp_k]
        return (self.tile.is_valid() and self.trait.is_valid() and
                validate_wave_config(wave, arch or self.arch)[0])

    def kernel(self, datatype: str) -> str:
        """Tessera's name of the kernel; for a tile of the original's that Tessera does not have, it
        is that of the first shipped kernel for the same. Raises Error with the rule that it breaks.
        """
        tile = self.tile
        asked = types.SimpleNamespace(
            variant=self.variant.value, dtype=datatype, layout="nhwgc",
            ndim_spatial=self.ndim_spatial, pipeline=self.trait.pipeline,
            scheduler=self.trait.scheduler, tile_m=tile.tile_m, tile_n=tile.tile_n,
            tile_k=tile.tile_k, wave_m=tile.warp_m, wave_n=tile.warp_n, wave_k=tile.warp_k,
            warp_tile_m=tile.warp_tile_m, warp_tile_n=tile.warp_tile_n,
            warp_tile_k=tile.warp_tile_k)
        target = _targets.resolve(self.arch)
        wish = _gemm.exact(_conv.named_kernel(asked, target), target, [])
        if not wish.kernels and _conv.originals(asked, target):
            wish = wish._replace(kernels=_conv.essential(asked, target))
        if not wish.kernels:
            raise Error("; ".join(wish.corrections), "illegal_spec")
        return wish.kernels[0]


class CKTileGroupedConvKernelGenerator:
    """Writes the source of one kernel."""

    def __init__(self, datatype: str,
                 variant: GroupedConvVariant = GroupedConvVariant.FORWARD) -> None:
        self.datatype, self.variant = datatype, variant

    def generate(self, config: GroupedConvKernelConfig) -> str:
        """A header with the source that Tessera emits, and with the name by which
        ck_tile/dispatcher registers the kernel. Raises Error where the target has no such
        kernel."""
        name = config.kernel(self.datatype)
        shown = tessera.command("show", kernel=name, target=config.arch, source=True)
        return (f"// {config.name(self.datatype)}: {name}\n#pragma once\n\n"
                "#include <ck_tile/dispatcher/grouped_conv_registry.hpp>\n\n"
                f"{shown['source']}\n")


class GroupedConvDispatcherWrapperGenerator:
    """Writes the header that registers one kernel."""

    def __init__(self, datatype: str,
                 variant: GroupedConvVariant = GroupedConvVariant.FORWARD) -> None:
        self.datatype, self.variant = datatype, variant

    def generate(self, config: GroupedConvKernelConfig, kernel_path: Any, output_dir: Any) -> str:
        """A header with a function that makes the kernel's instance; its key says what the kernel
        computes. kernel_path: the header of the source."""
        name = config.kernel(self.datatype)
        stem = pathlib.Path(kernel_path).stem.replace("-", "_")
        return _WRAPPER.format(file=pathlib.Path(kernel_path).name, name=name, stem=stem,
                               arch=config.arch)


_WRAPPER = """// Registers {name}, whose source is {file}.
#pragma once

#include <string>

#include <ck_tile/dispatcher/grouped_conv_registry.hpp>

namespace ck_tile::dispatcher {{
inline GroupedConvKernelInstancePtr make_{stem}(const std::string& gfx_arch = "{arch}") {{
  return backends::named_conv_kernel("{name}", gfx_arch);
}}
// The GroupedConvKernelKey of an instance is its key().
}}  // namespace ck_tile::dispatcher
"""


class UnifiedGroupedConvCodegen:
    """Writes the kernels of a target's list of configurations, and their wrappers."""

    def __init__(self, output_dir: Any, datatype: str = "fp16", ndim_spatial: int = 2,
                 gpu_target: str = "gfx942",
                 variants: Optional[Sequence[GroupedConvVariant]] = None) -> None:
        self.output_dir = pathlib.Path(output_dir)
        self.datatype, self.ndim_spatial, self.gpu_target = datatype, ndim_spatial, gpu_target
        self.variants = list(variants or [GroupedConvVariant.FORWARD])

    def _get_configs(self) -> List[GroupedConvKernelConfig]:
        return get_default_configs(self.gpu_target, self.variants, [self.ndim_spatial],
                                   self.datatype)

    def generate_all(self, configs: Optional[Iterable[GroupedConvKernelConfig]] = None,
                     parallel: bool = True) -> Dict[str, List[Any]]:
        """{"kernels": files, "wrappers": files, "failed": sentences}"""
        wanted = list(self._get_configs() if configs is None else configs)
        results: Dict[str, List[Any]] = {"kernels": [], "wrappers": [], "failed": []}
        self.output_dir.mkdir(parents=True, exist_ok=True)
        for kernel, wrapper, error in parallel_generate(self._one, wanted, parallel):
            if error:
                results["failed"].append(error)
            else:
                results["kernels"].append(kernel)
                results["wrappers"].append(wrapper)
        names = {kernel.stem: each for kernel, each in zip(
            results["kernels"], (config.kernel(self.datatype) for config in wanted
                                 if (self.output_dir / f"{config.name(self.datatype)}.hpp") in
                                 results["kernels"]))}
        if names:
            (self.output_dir / "register_all_grouped_conv_kernels.hpp").write_text(
                registration("grouped_conv_registry", "GroupedConv", {
                    ("register_all_grouped_conv_kernels", "get_grouped_conv_kernel_count"):
                        sorted(names.values())}, self.gpu_target), encoding="ascii")
        return results

    def _one(self, config: GroupedConvKernelConfig) -> Tuple[Any, Any, str]:
        """(the kernel's file, the wrapper's, a sentence where there is none)"""
        kernel = self.output_dir / f"{config.name(self.datatype)}.hpp"
        wrapper = self.output_dir / "dispatcher_wrappers" / f"dispatcher_wrapper_{kernel.name}"
        try:
            source = CKTileGroupedConvKernelGenerator(self.datatype, config.variant).generate(
                config)
            header = GroupedConvDispatcherWrapperGenerator(
                self.datatype, config.variant).generate(config, kernel, self.output_dir)
        except Error as error:
            return None, None, f"{config.name(self.datatype)}: {error}"
        kernel.write_text(source, encoding="utf-8")
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(header, encoding="ascii")
        return kernel, wrapper, ""


def config_of(kernel: str, arch: str) -> GroupedConvKernelConfig:
    """The original's fields of a kernel of convolution, by its lossless name."""
    spec = _gemm.spec_of(kernel, _targets.resolve(arch))
    signature, how = spec["signature"], spec["algorithm"]
    tile = TileConfig(*_gemm.numbers(how["tile"]), *_gemm.numbers(how["wave"]),
                      *_gemm.numbers(how["warp_tile"]))
    trait = GroupedConvTraitConfig(
        how["pipeline"], "cshuffle" if how["store"] == "cshuffle" else "default",
        "intrawave" if how["scheduler"] == "standard" else how["scheduler"])
    word = signature["direction"].replace("backward_", "bwd_")
    ndim = int(signature["ndim"])
    return GroupedConvKernelConfig(tile, trait, GroupedConvVariant(word), ndim, arch,
                                   GroupedConvLayout[_LAYOUTS[ndim][0]])


def get_default_configs(arch: str = "gfx942",
                        variants: Optional[Sequence[GroupedConvVariant]] = None,
                        ndims: Optional[Sequence[int]] = None, datatype: str = "fp16"
                        ) -> List[GroupedConvKernelConfig]:
    """The target's shipped kernels as configurations. Backward weight has each also as two_stage,
    which the original has and which changes nothing here."""
    target = _targets.resolve(arch)
    found = []
    for variant in variants or list(GroupedConvVariant):
        for ndim in ndims or [2]:
            asked = types.SimpleNamespace(variant=variant.value, dtype=datatype, layout="nhwgc",
                                          ndim_spatial=ndim)
            found += [config_of(name, target.name) for name in _conv.essential(asked, target)]
    if GroupedConvVariant.BACKWARD_WEIGHT in (variants or list(GroupedConvVariant)):
        found += [dataclasses.replace(config, trait=dataclasses.replace(
            config.trait, two_stage=True)) for config in found
            if config.variant == GroupedConvVariant.BACKWARD_WEIGHT]
    return found
