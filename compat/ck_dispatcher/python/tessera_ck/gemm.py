"""The original's words for GEMM, and Tessera's: configurations, problems, kernels, file names."""
from __future__ import annotations

import fnmatch
import itertools
from typing import (Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple)

import tessera
from tessera import Error

from . import fields, hints
from .kernel_files import kernel_set, list_kernels
from .targets import Target, pipelines

LETTERS = {"row": "r", "col": "c", "r": "r", "c": "c"}
VARIANTS = ("standard", "preshuffle", "multi_d")
STREAM_K = "stream_k"  # a variant, too, where a target has such kernels

# The original's element-wise operations as one step each; those that read D add it up first.
STEPS = {"Relu": "relu", "Gelu": "gelu", "FastGelu": "gelu_tanh", "Sigmoid": "sigmoid",
         "Tanh": "tanh", "Swish": "silu"}
PIPELINES = {"preshufflev2": "compv3", "preshufflev1": "compv3"}


def layout_word(*letters: str) -> str:
    """("row", "col", "row") is "rcr"."""
    try:
        return "".join(LETTERS[letter] for letter in letters)
    except KeyError as error:
        raise Error(f"a layout is 'row' or 'col', got {error}") from None


def epilogue_of(operation: str, num_d: int) -> str:
    """op(A x B + D0 + D1 + ...) as a chain: ("Relu", 1) is "multi_d_add1+relu". PassThrough reads
    no D, and AddScale adds with the scale 1, as in the original."""
    adds = [f"multi_d_add{num_d}"] if num_d else []
    if operation == "PassThrough":
        return "none"
    if operation in ("MultiDAdd", "Add", "AddScale"):
        return "+".join(adds) or "none"
    if operation in ("MultiDMultiply", "Multiply"):
        return f"multi_d_multiply{num_d}" if num_d else "none"
    if operation not in STEPS:
        known = ", ".join(["PassThrough", "MultiDAdd", "MultiDMultiply", *STEPS])
        raise Error(f"there is no element-wise operation '{operation}'; there are {known}",
                    "not_found")
    return "+".join([*adds, STEPS[operation]])


def operation_of(epilogue: str) -> Tuple[str, int]:
    """The original's operation and number of D tensors; ("", 0) for none, and an epilogue that it
    has no word for keeps its own."""
    if epilogue == "none":
        return "", 0
    for operation, num_d in itertools.product(("MultiDAdd", "MultiDMultiply", *STEPS), range(5)):
        if epilogue == epilogue_of(operation, num_d):
            return operation, num_d
    names = epilogue.split("+")
    count = sum(int(name[-1]) if name.startswith("multi_d") else
                name in ("bias", "add", "multiply", "row_scale", "col_scale") for name in names)
    return "".join(name.title().replace("_", "") for name in names), count


class Wish(NamedTuple):
    """What a configuration asks of a target."""
    kernels: List[str]      # lossless names; [] where the target has none such
    corrections: List[str]  # what was not taken, and why
    is_exact: bool          # the configuration named one kernel


def problem_of(config: Any, m: int, n: int, k: int) -> tessera.Problem:
    given: Dict[str, Any] = {"dtype": ",".join(types_of(config)), "layout": config.layout[:3]}
    if config.dtype_c != default_output(config.dtype_a):
        given["out"] = config.dtype_c
    if (epilogue := config_epilogue(config)) != "none":
        given["epilogue"] = epilogue
    if config.variant == "preshuffle":
        given["preshuffle"] = 1
    return tessera.Problem("gemm", m=m, n=n, k=k, **given)


def types_of(config: Any) -> List[str]:
    """The operands' types, once where they are the same."""
    return list(dict.fromkeys((config.dtype_a, config.dtype_b)))


def default_output(dtype: str) -> str:
    return {"fp8": "fp16", "bf8": "fp16", "int8": "int32"}.get(dtype, dtype)


def config_epilogue(config: Any) -> str:
    if config.variant not in ("multi_d", "multi_abd"):
        return "none"
    return epilogue_of(getattr(config, "elementwise_op", "MultiDAdd"),
                       getattr(config, "num_d_tensors", 1))


def is_plain_without_d(config: Any) -> bool:
    """Whether a configuration is of multi_d and names no operation: the original computes a plain
    product then, where no D is given."""
    kind = type(config)
    return bool(config.variant == "multi_d" and
                (config.elementwise_op, config.num_d_tensors) ==
                (kind.elementwise_op, kind.num_d_tensors))


def triple(*numbers: int) -> str:
    return "x".join(map(str, numbers))


def holds_waves(config: Any) -> bool:
    """Whether the tile is whole warp tiles of all waves."""
    return all(wave > 0 and warp > 0 and tile % (wave * warp) == 0 for tile, wave, warp in (
        (getattr(config, f"tile_{axis}"), getattr(config, f"wave_{axis}"),
         getattr(config, f"warp_{axis}")) for axis in "mnk"))


def usual_waves(config: Any) -> Dict[str, int]:
    """The defaults of waves and warp tiles."""
    return {f"{prefix}_{axis}": getattr(type(config), f"{prefix}_{axis}")
            for prefix in ("wave", "warp") for axis in "mnk"}


def has_usual_shapes(config: Any) -> bool:
    names = [f"{prefix}_{axis}" for prefix in ("tile", "wave", "warp") for axis in "mnk"]
    return all(getattr(config, name) == getattr(type(config), name, None) for name in names)


def ending_of(config: Any, target: Target) -> List[str]:
    """The last words of a kernel's name: the scheduler, which kernels of CPUs have not, and the
    target."""
    is_named = config.scheduler not in ("", "default", "auto", "standard")
    return [*([config.scheduler] if target.backend != "cpu" and is_named else []), target.name]


def named_kernel(config: Any, target: Target) -> str:
    """The lossless name of the one kernel that a configuration describes."""
    words = ["gemm", *types_of(config), config.layout[:3],
             PIPELINES.get(config.pipeline, config.pipeline),
             *(fields.shape(config, prefix) for prefix in ("tile", "wave", "warp"))]
    if config.dtype_c != default_output(config.dtype_a):
        words.append("out" + config.dtype_c)
    if config.variant == "preshuffle":
        words.append("presh")
    if (epilogue := config_epilogue(config)) != "none":
        words += [step.replace("_", "") for step in epilogue.split("+")]
    *scheduler, name = ending_of(config, target)
    streams = ["splitordered1", "streamk"] if config.variant == STREAM_K else []
    persistent = ["persistent"] if config.persistent else []
    return "_".join([*words, *scheduler, *streams, *persistent, name])


def exact(name: str, target: Target, ignored: List[str]) -> Wish:
    """The one kernel of a name, or the rule that it breaks."""
    shown = tessera.command("show", kernel=name, target=target.word, check=False)
    if not shown.get("legal"):
        return Wish([], [f"{name}: {shown.get('reason', '')}"], True)
    return Wish([shown["kernel"]], ignored, True)


def wish_of(config: Any, target: Target) -> Wish:
    """The kernels for a configuration. One that names a pipeline of the target is exact. Another is
    a wish for what to compute, and so is one with the default tile, whose types have other
    instructions; how is then the target's to say."""
    ignored = hints.of_config(config)
    if sentence := several_operands(config):
        return Wish([], [sentence], True)
    there = pipelines(target, "gemm")
    if PIPELINES.get(config.pipeline, config.pipeline) in there:
        found = exact(named_kernel(config, target), target, ignored)
        if found.kernels or not has_usual_shapes(config):
            return found
        return Wish(general_kernels(config, target), [*found.corrections, *ignored], False)
    note = (f"pipeline {config.pipeline}, tile {fields.shape(config, 'tile')} are not those of "
            f"{target.name}, whose pipelines are {', '.join(there)}; its kernels for these types "
            "and this layout are taken")
    return Wish(general_kernels(config, target), [note, *ignored], False)


def several_operands(config: Any) -> str:
    """Why no kernel reads the A and B of a configuration; empty where one does. PassThrough takes
    the first of them."""
    for each in "ab" if config.variant == "multi_abd" else "":
        operation, count = (getattr(config, f"{each}_elementwise_op"),
                            getattr(config, f"num_{each}_tensors"))
        if operation != "PassThrough" and count > 1:
            return (f"{each}_elementwise_op must be PassThrough, got {operation} of {count}: no "
                    f"kernel combines several {each.upper()} while it multiplies")
    return ""


def shipped(target: Target, name: str) -> List[str]:
    """The kernels of a shipped set; [] where the target has none of this name."""
    try:
        return tessera.KernelSet("ck_dispatcher", target.word).preselected(name).kernels
    except Error as error:
        if error.code != "not_found":
            raise
        return []


def best_for(target: Target, problems: Iterable[Callable[[int], Any]]) -> List[str]:
    """The best kernels by estimate for three sizes of problems."""
    kernels = tessera.KernelSet("ck_dispatcher", target.word)
    for problem in problems:
        for size in (64, 1024, 4096):
            kernels.for_problem(problem(size), best=1)
    return kernels.kernels


def general_kernels(config: Any, target: Target) -> List[str]:
    """Those that are shipped for the types and layout; where there are none, the best by estimate
    for three sizes."""
    is_plain = config_epilogue(config) == "none" and config.variant != "preshuffle"
    found = []
    if is_plain and config.dtype_a == config.dtype_b:
        found = shipped(target, f"{config.dtype_a}_{config.layout[:3]}_essential")
    return found or best_for(target, [lambda size: problem_of(config, size, size, size)])


# What stands for the variant multi_d, where no operation is named.
USUAL_MULTI_D = (("MultiDAdd", 1), ("MultiDAdd", 2), ("MultiDMultiply", 1), ("Relu", 1),
                 ("Gelu", 1))


def streaming_kernels(target: Target, dtype: str, layout: str) -> List[str]:
    """The best stream-K kernels by estimate for three sizes. Raises Error where there is none."""
    names = legal_kernels(target, dtype, layout, where=[*WHERE[STREAMK], "epilogue=none"])
    pool = tessera.Registry("ck_dispatcher")
    pool.declare(kernel_set(target, names))
    chooser = tessera.Dispatcher(target.word, pool=pool)
    found = [chooser.select(f"gemm m={size} n={size} k={size} dtype={dtype} layout={layout[:3]}")
             for size in (64, 1024, 4096)]
    return list(dict.fromkeys(each["kernel"] for each in found))


def variant_kernels(target: Target, dtype: str, layout: str, variant: str) -> List[str]:
    """standard: what is shipped for the type and layout. The others: the best by estimate for three
    sizes."""
    if variant == "standard":
        kernels = tessera.KernelSet("ck_dispatcher", target.word)
        return kernels.preselected(f"{dtype}_{layout[:3]}_essential").kernels
    if variant == STREAM_K:
        return streaming_kernels(target, dtype, layout)
    rests = ["preshuffle=1"]
    if variant == "multi_d":
        rests = [f"epilogue={epilogue_of(*each)}" for each in USUAL_MULTI_D]
    return best_for(target, [
        lambda size, rest=rest: (f"gemm m={size} n={size} k={size} dtype={dtype} "
                                 f"layout={layout[:3]} {rest}") for rest in rests])


# ---- File names ----------------------------------------------------------------------------------

def file_name(spec: Dict[str, Any]) -> str:
    """The original's name of a generated file, without its suffix:
    gemm_fp16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_32x32x16.

    Fields that the original doesn't have follow as in Tessera's own name, so that no two kernels of
    a target share a file.
    """
    signature, how = spec["signature"], spec["algorithm"]
    types = signature["a"] if signature["a"] == signature["b"] else "_".join(
        (signature["a"], signature["b"]))
    operation, num_d = operation_of(signature["epilogue"])
    layout = signature["layout"] + ("r" if operation else "")
    words = ["gemm", types, layout, how["pipeline"],
             "cshuffle" if how["store"] == "cshuffle" else "default",
             "default" if how["scheduler"] == "standard" else how["scheduler"],
             "True_True_True", str(bool(how["persistent"])), how["tile"], how["wave"],
             how["warp_tile"], *_further(spec)]
    if signature["preshuffle"]:
        words.append("preshuffle")
    if operation:
        words += ["multid", operation, f"d{num_d}"]
    if how.get("streamk"):
        words.append("streamk")
    return "_".join(words)


def _further(spec: Dict[str, Any]) -> Iterable[str]:
    signature, how = spec["signature"], spec["algorithm"]
    if signature["out"] != default_output(signature["a"]):
        yield "out" + signature["out"]
    if how["store"] not in ("standard", "cshuffle"):
        yield "store" + how["store"]
    if how["split_k"] != "none" and not how.get("streamk"):
        yield f"split{how['split_k']}{how['splits']}"
    if how["slices"] != 1:
        yield f"slices{how['slices']}"
    if how["stages"] != 1:
        yield f"s{how['stages']}"
    if (how["cluster_m"], how["cluster_n"]) != (1, 1):
        yield f"c{how['cluster_m']}x{how['cluster_n']}"
    for field, word in (("swap_ab", "swap"), ("repack", "repack")):
        if how[field]:
            yield word


def spec_of(kernel: str, target: Optional[Target] = None) -> Dict[str, Any]:
    return tessera.command("show", kernel=kernel, target=target and target.word)["spec"]


def numbers(word: str) -> Tuple[int, ...]:
    """"128x64x32" is (128, 64, 32)."""
    return tuple(int(part) for part in word.split("x"))


# The operations that have models, and what tells their kernels in the list of a target.
STREAMK = "gemm_streamk"
WHERE = {"gemm_universal": [], STREAMK: ["streamk=true"]}


def names_of(op_type: str) -> List[str]:
    """Wildcards over the names of an operation's kernels; none: every kernel is of it."""
    return ["*_streamk_*"] if op_type == STREAMK else []


def is_kernel_of(op_type: str, name: str) -> bool:
    wildcards = names_of(op_type)
    return not wildcards or any(fnmatch.fnmatchcase(name, each) for each in wildcards)


def legal_kernels(target: Target, dtype: str, layout: str, variants: Sequence[str] = ("standard",),
                  **options: Any) -> List[str]:
    return list_kernels("gemm", target, datatype=[dtype], layout=[layout[:3]],
                        variants=list(variants), **options)
