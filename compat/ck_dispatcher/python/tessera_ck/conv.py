"""The original's words for grouped convolutions, and Tessera's."""
from __future__ import annotations

from typing import Any, Dict, List

import tessera
from tessera import Error

from . import fields, gemm, hints
from .gemm import Wish
from .targets import Target, original_space, pipelines

# variant -> (Tessera's direction, the operands in the order of the original's three slots)
DIRECTIONS = {"forward": ("forward", ("in", "weight", "out")),
              "bwd_data": ("backward_data", ("grad_out", "weight", "grad_in")),
              "bwd_weight": ("backward_weight", ("in", "grad_out", "grad_weight"))}
ALIASES = {"fwd": "forward", "2d_fwd": "forward", "3d_fwd": "forward",
           "bwdd": "bwd_data", "2d_bwdd": "bwd_data", "3d_bwdd": "bwd_data",
           "backward_data": "bwd_data", "bwdw": "bwd_weight", "2d_bwdw": "bwd_weight",
           "3d_bwdw": "bwd_weight", "backward_weight": "bwd_weight"}


def variant_word(word: str) -> str:
    """"bwdd", "2d_bwdd" and "backward_data" are "bwd_data"."""
    found = ALIASES.get(word, word)
    if found not in DIRECTIONS:
        raise Error(f"a variant is one of {', '.join([*DIRECTIONS, *ALIASES])}, got '{word}'")
    return found


def is_3d(depth: int, filter_depth: int, pad: int) -> bool:
    """Two dimensions have a depth of 1, or leave it at 0; another depth is a third, and checked."""
    return depth not in (0, 1) or filter_depth not in (0, 1) or pad != 0


def problem_of(p: Any, dtype: str, layout: str = "nhwgc") -> tessera.Problem:
    """p: with the original's fields N, C, K, G, Hi, Wi, Y, X, stride_h, ..., direction."""
    given: Dict[str, Any] = {
        "direction": DIRECTIONS[variant_word(p.direction)][0], "n": p.N, "c": p.C, "k": p.K,
        "g": p.G, "h": p.Hi, "w": p.Wi, "y": p.Y, "x": p.X, "dtype": dtype}
    if p.is_3d:
        given.update({"ndim": 3, "d": p.Di, "z": p.Z})
    for axis in "dhw" if p.is_3d else "hw":
        for word in ("stride", "dilation", "pad"):
            given[f"{word}_{axis}"] = getattr(p, f"{word}_{axis}")
        given[f"pad_right_{axis}"] = given[f"pad_{axis}"]
    return tessera.Problem("conv", **given, layout=layout_word(layout))


def layout_word(layout: str) -> str:
    """"NHWGC_GKYXC_NHWGK", "ndhwgc" and "nwgc" are "nhwgc": the input's part says it, and arrays
    have the shapes of GroupedConvProblem."""
    found = layout.lower().partition("_")[0]
    if found not in ("nhwgc", "ndhwgc", "nwgc", "nchw"):
        raise Error(f"layout must be nhwgc or nchw, got '{layout}'")
    return "nchw" if found == "nchw" else "nhwgc"


def named_kernel(config: Any, target: Target) -> str:
    return "_".join([
        "conv", DIRECTIONS[variant_word(config.variant)][0].replace("_", ""), config.dtype,
        layout_word(config.layout), f"{config.ndim_spatial}d", config.pipeline,
        *(fields.shape(config, prefix) for prefix in ("tile", "wave", "warp_tile")),
        *gemm.ending_of(config, target)])


def wish_of(config: Any, target: Target) -> Wish:
    """As for GEMM: a pipeline of the target makes the configuration exact. On AMD's GPUs, which the
    original's defaults are for, their tile_m of 1 is no kernel's and stands for any, as does a tile
    that is right by the original's rules and that Tessera does not have."""
    there = pipelines(target, "conv")
    if not there:
        return Wish([], [f"target {target.name} has no kernels for convolutions"], False)
    ignored = hints.of_config(config)
    has_default = target.backend == "hip" and config.tile_m == 1
    if config.pipeline in there and not has_default:
        try:
            found = gemm.exact(named_kernel(config, target), target, ignored)
        except Error as error:
            return Wish([], [str(error)], True)
        if found.kernels or not originals(config, target):
            return found
    why = (f"tile {fields.shape(config, 'tile')} is no kernel's on {target.name}"
           if config.pipeline in there else
           f"pipeline {config.pipeline} is not one of {target.name}'s, {', '.join(there)}")
    note = f"{why}; its kernels for this direction, type and layout are taken"
    return Wish(essential(config, target), [note, *ignored], False)


def originals(config: Any, target: Target) -> bool:
    """Whether the original's rules for one of its targets let a configuration's shapes be."""
    if target.backend != "hip":
        return False
    space = original_space(target.name, "gemm")
    tiles = space.get("warp_tiles", {}).get(config.dtype, [])
    return (fields.shape(config, "wave") in space.get("waves", []) and
            fields.shape(config, "warp_tile") in tiles and all(
                getattr(config, f"tile_{axis}") % (
                    getattr(config, f"wave_{axis}") * getattr(config, f"warp_tile_{axis}")) == 0
                for axis in "mn"))


def essential(config: Any, target: Target) -> List[str]:
    """The shipped set; where it has none for so many dimensions, all kernels of the signature."""
    direction = DIRECTIONS[variant_word(config.variant)][0]
    found = [name for name in gemm.shipped(target,
                                           f"{direction}_{config.dtype}_"
                                           f"{layout_word(config.layout)}_essential")
             if f"_{config.ndim_spatial}d_" in name]
    return found or tessera.KernelSet("ck_dispatcher", target.word).op("conv").where(
        direction=direction, dtype=config.dtype, layout=layout_word(config.layout),
        ndim=str(config.ndim_spatial), epilogue="none").kernels


def file_name(spec: Dict[str, Any]) -> str:
    """The original's name of a generated file: grouped_conv_fwd_fp16_nhwgc_2d_packab_...; fields
    that it doesn't have follow."""
    signature, how = spec["signature"], spec["algorithm"]
    short = {"forward": "fwd", "backward_data": "bwd_data", "backward_weight": "bwd_weight"}
    words = ["grouped_conv", short[signature["direction"]], signature["in"], signature["layout"],
             f"{signature['ndim']}d", how["pipeline"],
             "cshuffle" if how["store"] == "cshuffle" else "default",
             "default" if how["scheduler"] == "standard" else how["scheduler"], how["tile"],
             how["wave"], how["warp_tile"]]
    known = "_".join([signature["in"], signature["layout"], f"{signature['ndim']}d",
                      how["pipeline"], how["tile"], how["wave"], how["warp_tile"]])
    rest = spec["name"].partition(known + "_")[2].split("_")[:-1]
    return "_".join([*words, *(word for word in rest if word != how["scheduler"])])
