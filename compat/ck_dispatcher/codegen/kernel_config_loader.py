"""Sets of kernels in JSON files of the tile engine: ranges of tiles and traits."""
from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import fields as _fields

# The fields of a tile and of a trait, with the defaults of GEMM.
_TILE = (("tile_m", 128), ("tile_n", 128), ("tile_k", 32), ("warp_m", 2), ("warp_n", 2),
         ("warp_k", 1), ("warp_tile_m", 32), ("warp_tile_n", 32), ("warp_tile_k", 16))
_TRAIT = (("pipeline", "compv4"), ("scheduler", "intrawave"), ("epilogue", "cshuffle"),
          ("pad_m", False), ("pad_n", False), ("pad_k", False))
_CONV_TRAIT = (("pipeline", "compv3"), ("scheduler", "intrawave"), ("epilogue", "cshuffle"),
               ("pad_m", True), ("pad_n", True), ("pad_k", True), ("double_smem_buffer", False),
               ("num_groups_to_merge", 1))


@_fields.table(*_TILE)
class TileConfig:
    """warp_*: waves of a block; warp_tile_*: one matrix instruction."""


@_fields.table(*_TRAIT)
class TraitConfig:
    """How a GEMM kernel works."""


@_fields.table(*_CONV_TRAIT)
class ConvTraitConfig:
    """How a kernel of a convolution works."""


ConvTileConfig = TileConfig


def _shapes(tile: Any) -> str:
    return "_".join(_fields.shape(tile, prefix) for prefix in ("tile", "warp", "warp_tile"))


class _Config:
    """One kernel of a set: a tile, a trait and the fields of the set."""

    tile: Any
    trait: Any

    def to_dict(self) -> Dict[str, Any]:
        """All fields side by side."""
        whole = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {**whole.pop("tile"), **whole.pop("trait"), **whole}


@dataclasses.dataclass
class KernelConfig(_Config):
    tile: Any = dataclasses.field(default_factory=TileConfig)
    trait: Any = dataclasses.field(default_factory=TraitConfig)
    dtype_a: str = "fp16"
    dtype_b: str = "fp16"
    dtype_c: str = "fp16"
    dtype_acc: str = "fp32"
    layout: str = "rcr"
    gpu_target: str = "gfx942"
    variant: str = "standard"

    def kernel_name(self) -> str:
        """The original's name of the kernel, whose padding is as given."""
        trait = self.trait
        return "_".join(["gemm", self.dtype_a, self.layout, trait.pipeline, trait.epilogue,
                         trait.scheduler, *(str(bool(each)) for each in (
                             trait.pad_m, trait.pad_n, trait.pad_k, False)), _shapes(self.tile)])


@dataclasses.dataclass
class ConvKernelConfig(_Config):
    tile: Any = dataclasses.field(default_factory=ConvTileConfig)
    trait: Any = dataclasses.field(default_factory=ConvTraitConfig)
    dtype_input: str = "fp16"
    dtype_weight: str = "fp16"
    dtype_output: str = "fp16"
    dtype_acc: str = "fp32"
    variant: str = "forward"
    ndim: int = 2
    layout: str = "nhwgc"
    gpu_target: str = "gfx942"
    vector_size_a: int = 4
    vector_size_b: int = 8
    vector_size_c: int = 8
    block_per_cu: int = 1
    num_wave_groups: int = 1

    def kernel_name(self) -> str:
        short = {"forward": "fwd", "bwd_data": "bwdd", "bwd_weight": "bwdw"}
        trait = self.trait
        return "_".join(["conv", short.get(self.variant, self.variant), self.dtype_input,
                         f"{self.ndim}d", trait.pipeline, trait.epilogue, trait.scheduler,
                         _shapes(self.tile)])


class KernelConfigSet:
    """Every combination of the values of tiles and traits, for each target. The values of a field
    are its attribute {field}_values."""

    config_type: Any = KernelConfig
    parts: Tuple[Any, ...] = (_TILE, _TRAIT)

    def __init__(self, name: str = "default", **given: Any) -> None:
        self.name = name
        self.gpu_targets: List[str] = list(given.pop("gpu_targets", ["gfx942"]))
        for field, usual in itertools.chain(*self.parts):
            setattr(self, f"{field}_values", list(given.pop(f"{field}_values", [usual])))
        self._shared = {field.name: given.pop(field.name, field.default)
                        for field in dataclasses.fields(self.config_type)
                        if field.name not in ("tile", "trait", "gpu_target")}
        for field, value in self._shared.items():
            setattr(self, field, value)
        if given:
            raise Error(f"a set of kernels has no field '{next(iter(given))}'", "not_found")

    def _values(self, part: Any) -> List[List[Any]]:
        return [getattr(self, f"{field}_values") for field, _ in part]

    def generate_configs(self) -> Iterator[Any]:
        tiles, traits = self.parts
        made = {field.name: field.default_factory() for field in dataclasses.fields(
            self.config_type) if field.name in ("tile", "trait")}  # type: ignore[misc]
        shared = {field: getattr(self, field) for field in self._shared}
        for target, tile, trait in itertools.product(
                self.gpu_targets, itertools.product(*self._values(tiles)),
                itertools.product(*self._values(traits))):
            yield self.config_type(
                tile=type(made["tile"])(*tile), trait=type(made["trait"])(*trait),
                gpu_target=target, **shared)

    def config_count(self) -> int:
        count = len(self.gpu_targets)
        for values in itertools.chain(*map(self._values, self.parts)):
            count *= len(values)
        return count


class ConvKernelConfigSet(KernelConfigSet):
    config_type = ConvKernelConfig
    parts = (_TILE, _CONV_TRAIT)


def _values_of(field: str, given: Any) -> List[Any]:
    """{"values": [...]}, {"min", "max", "step"}, a list, or one value."""
    if isinstance(given, dict):
        if "values" in given:
            return list(given["values"])
        if "min" in given and "max" in given:
            return list(range(given["min"], given["max"] + 1, given.get("step", 1)))
        raise Error(f"'{field}' has neither values nor min and max", "parse_error")
    return list(given) if isinstance(given, list) else [given]


def _read(path: Any, kind: Any, types: Dict[str, str]) -> Any:
    file = pathlib.Path(path)
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Error(f"{file} is no JSON: {error}", "parse_error") from None
    given: Dict[str, Any] = {}
    for part, known in zip(("tile_config", "trait_config"), kind.parts):
        for field, values in whole.get(part, {}).items():
            if field in dict(known):
                given[f"{field}_values"] = _values_of(field, values)
    for key, field in types.items():
        if key in whole.get("datatype", {}):
            given[field] = whole["datatype"][key]
    names = {field.name for field in dataclasses.fields(kind.config_type)} - {"tile", "trait"}
    given.update({key: value for key, value in whole.items()
                  if key in names and key != "gpu_target"})
    targets = whole.get("gpu_targets") or [whole.get("gpu_target", "gfx942")]
    return kind(whole.get("kernel_set_name", file.stem), gpu_targets=targets, **given)


def load_kernel_configs(json_path: Any) -> KernelConfigSet:
    """The set of GEMM kernels in a file. What the file leaves out has its default."""
    return _read(json_path, KernelConfigSet, {"a": "dtype_a", "b": "dtype_b", "c": "dtype_c",
                                              "acc": "dtype_acc"})


def load_conv_kernel_configs(json_path: Any) -> ConvKernelConfigSet:
    return _read(json_path, ConvKernelConfigSet, {
        "input": "dtype_input", "weight": "dtype_weight", "output": "dtype_output",
        "acc": "dtype_acc"})


def generate_cpp_kernel_set_declaration(config_set: KernelConfigSet, set_name: str = "") -> str:
    """The set as a DECL_KERNEL_SET of ck_tile/dispatcher/kernel_decl.hpp."""
    lines = []
    for config in config_set.generate_configs():
        tile = config.tile
        lines.append(
            f'    .add(decl::Signature().dtype("{config.dtype_a}", "{config.dtype_b}", '
            f'"{config.dtype_c}", "{config.dtype_acc}").layout("{config.layout}"),\n'
            f"         decl::Algorithm().tile({tile.tile_m}, {tile.tile_n}, {tile.tile_k})"
            f".wave({tile.warp_m}, {tile.warp_n}, {tile.warp_k})"
            f".warp({tile.warp_tile_m}, {tile.warp_tile_n}, {tile.warp_tile_k})\n"
            f'             .pipeline("{config.trait.pipeline}")'
            f'.scheduler("{config.trait.scheduler}"), "{config.gpu_target}")')
    return f"DECL_KERNEL_SET({set_name or config_set.name},\n" + "\n".join(lines) + ");\n"
