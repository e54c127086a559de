"""The original's words for grouped convolutions, and Tessera's."""
from __future__ import annotations

from typing import Any, Dict, List

import tessera
from tessera import Error

from . import hints
from .gemm import Wish, triple
from .targets import Target, dispatcher_of, pipelines

# variant -> (Tessera's direction, the operands in the order of the original's three slots)
DIRECTIONS = {"forward": ("forward", ("in", "weight", "out")),
              "bwd_data": ("backward_data", ("grad_out", "weight", "grad_in")),
              "bwd_weight": ("backward_weight", ("in", "grad_out", "grad_weight"))}
ALIASES = {"fwd": "forward", "2d_fwd": "forward", "3d_fwd": "forward",
           "bwdd": "bwd_data", "2d_bwdd": "bwd_data", "3d_bwdd": "bwd_data",
           "backward_data": "bwd_data", "bwdw": "bwd_weight", "2d_bwdw": "bwd_weight",
           "3d_bwdw": "bwd_weight", "backward_weight": "bwd_weight"}
BACKWARD_PIPELINES = ("compv3", "mem")


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
    fields: Dict[str, Any] = {
        "direction": DIRECTIONS[variant_word(p.direction)][0], "n": p.N, "c": p.C, "k": p.K,
        "g": p.G, "h": p.Hi, "w": p.Wi, "y": p.Y, "x": p.X, "dtype": dtype,
        "stride_h": p.stride_h, "stride_w": p.stride_w, "dilation_h": p.dilation_h,
        "dilation_w": p.dilation_w, "pad_h": p.pad_h, "pad_w": p.pad_w, "pad_right_h": p.pad_h,
        "pad_right_w": p.pad_w}
    if p.is_3d:
        fields.update({"ndim": 3, "d": p.Di, "z": p.Z, "stride_d": p.stride_d,
                       "dilation_d": p.dilation_d, "pad_d": p.pad_d, "pad_right_d": p.pad_d})
    if layout not in ("nhwgc", "nchw"):
        raise Error(f"layout must be nhwgc or nchw, got '{layout}'")
    return tessera.Problem("conv", **fields, layout=layout)


def named_kernel(config: Any, target: Target) -> str:
    words = ["conv", DIRECTIONS[variant_word(config.variant)][0].replace("_", ""), config.dtype,
             config.layout, f"{config.ndim_spatial}d", config.pipeline,
             triple(config.tile_m, config.tile_n, config.tile_k),
             triple(config.wave_m, config.wave_n, config.wave_k),
             triple(config.warp_tile_m, config.warp_tile_n, config.warp_tile_k)]
    if target.backend != "cpu" and config.scheduler not in ("", "default", "standard"):
        words.append(config.scheduler)
    return "_".join([*words, target.name])


def wish_of(config: Any, target: Target) -> Wish:
    """As for GEMM: a pipeline of the target makes the configuration exact."""
    there = pipelines(target, "conv")
    if not there:
        row = dispatcher_of(target.word).target["name"]
        return Wish([], [f"target {row} has no kernels for convolutions"], False)
    ignored = hints.of_config(config, hints.CONV)
    if config.pipeline in there:
        name = named_kernel(config, target)
        try:
            shown = tessera.command("show", kernel=name, target=target.word, check=False)
        except Error as error:
            return Wish([], [str(error)], True)
        if not shown["legal"]:
            return Wish([], [f"{name}: {shown['reason']}"], True)
        return Wish([shown["kernel"]], ignored, True)
    note = (f"pipeline {config.pipeline} is not one of {target.name}'s, {', '.join(there)}; its "
            "kernels for this direction, type and layout are taken")
    return Wish(essential(config, target), [note, *ignored], False)


def essential(config: Any, target: Target) -> List[str]:
    """The shipped set; where it has none for so many dimensions, all kernels of the signature."""
    direction = DIRECTIONS[variant_word(config.variant)][0]
    try:
        shipped = tessera.KernelSet("ck_dispatcher", target.word).preselected(
            f"{direction}_{config.dtype}_{config.layout}_essential").kernels
    except Error as error:
        if error.code != "not_found":
            raise
        shipped = []
    found = [name for name in shipped if f"_{config.ndim_spatial}d_" in name]
    if not found:
        kernels = tessera.KernelSet("ck_dispatcher", target.word).op("conv")
        found = kernels.where(direction=direction, dtype=config.dtype, layout=config.layout,
                              ndim=str(config.ndim_spatial), epilogue="none").kernels
    return found


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
