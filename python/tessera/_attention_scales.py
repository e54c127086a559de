"""Factors of attention's numbers of 8 bits: from arrays and their shapes to a problem's fields."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from . import _arrays, _dtypes, _values
from ._abi import Error
from ._arrays import View

NAMES = ("descale_q", "descale_k", "descale_v", "scale_o")
_OF_INPUTS = NAMES[:3]
_BLOCK = 128  # queries or keys of a factor, where a call does not say how many
Blocks = Tuple[Optional[int], Optional[int]]  # of queries, of keys


# The type of a new result, where it is not that of the inputs.
RESULTS = dict.fromkeys(("fp8", "bf8", "int8"), "fp16")


def arrays_of(given: Tuple[Any, ...], q: Any, out: Any) -> Tuple[Any, ...]:
    """Those of NAMES beside q. A number becomes an array; an output of 8 bits has a factor where
    the inputs have. Queries of more bits have none."""
    if all(one is None for one in given):
        return given
    has_queries = _is_eight_bits(q) or given[0] is not None
    for name, one in zip(_OF_INPUTS, given):
        if one is None and (has_queries or name != "descale_q"):
            of = "q, k and v" if has_queries else "k and v"
            raise Error(f"{name} must be given beside the other factors of {of}")
    if given[3] is None and out is not None and _is_eight_bits(out):
        given = (*given[:3], 1.0)
    return tuple(_array(name, one, q) for name, one in zip(NAMES, given))


def _is_eight_bits(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).rpartition(".")[2].startswith("float8")


def _array(name: str, given: Any, q: Any) -> Any:
    if given is None or hasattr(given, "shape"):
        return given
    try:
        number = _values.number(name, given)
    except Error:
        raise Error(f"{name} must be a number or an array of float32, got "
                    f"{_values.shown(given)}") from None
    return _arrays.full((1,), number, "float32", q, f"{name} must be an array on the GPU")


def _is_one(view: View) -> bool:
    return view.shape in ((), (1,))


def _check(name: str, view: View, wanted: Tuple[int, ...], what: str) -> None:
    if view.dtype != "fp32":
        raise Error(f"{name} must have the type float32, got {_dtypes.NAMES[view.dtype]}")
    if view.shape != wanted and not (wanted == (1,) and view.shape == ()):
        raise Error(f"{name} must have the shape {wanted}{what}, got {view.shape}")
    _arrays.check_packed(name, view)


def cache_arrays_of(given: Tuple[Any, Any], like: Any) -> Tuple[Any, Any]:
    """Factors of a cache that is appended to."""
    names = _OF_INPUTS[1:]
    if given[0] is given[1] is None:
        return given
    for name, one in zip(names, given):
        if one is None:
            raise Error(f"{name} must be given beside the other factors of k and v")
    return _array(names[0], given[0], like), _array(names[1], given[1], like)


def cache_fields(views: Mapping[str, View], problem: Mapping[str, Any]) -> Dict[str, Any]:
    """The same of a cache of 8 bits that is appended to, whose tokens' factors are written."""
    if "descale_k" not in views:
        return {}
    if "kv" not in problem:
        raise Error("descale_k and descale_v are for caches of float8 and new keys of another "
                    f"type, got {_dtypes.NAMES[views['k'].dtype]}")
    kind = kind_of(views, None, problem)
    for name in _OF_INPUTS[1:]:
        _check(name, views[name], *_shape("per_token" if kind == "kv_block" else kind, name,
                                          (None, None), problem))
        if kind == "per_token":
            _arrays.check_output(views[name], name)
    return {"qscale": kind}


def fields(blocks: Blocks, views: Mapping[str, View], problem: Mapping[str, Any]
           ) -> Dict[str, Any]:
    """problem: the fields that say how large it is."""
    found: Dict[str, Any] = {name: block for name, block in
                             zip(("qscale_block_q", "qscale_block_k"), blocks)
                             if block is not None}
    if "descale_k" not in views:
        if "scale_o" in views:
            raise Error("scale_o needs descale_q, descale_k and descale_v")
        return found
    like = "q" if "descale_q" in views else "k"
    if _dtypes.BYTES[views[like].dtype] != 1:
        raise Error("descale_q, descale_k and descale_v are for q, k and v of float8, got "
                    f"{_dtypes.NAMES[views[like].dtype]}")
    found["qscale"] = kind_of(views, blocks[1], problem)
    for name in _OF_INPUTS:
        if name in views:
            _check(name, views[name], *_shape(found["qscale"], name, blocks, problem))
    if "scale_o" in views:
        _check("scale_o", views["scale_o"], (1,), "")
        if _dtypes.BYTES[views["out"].dtype] != 1:
            raise Error("scale_o is for a result of float8, got "
                        f"{_dtypes.NAMES[views['out'].dtype]}; give out of that type")
    return found


def kind_of(views: Mapping[str, View], block: Optional[int], problem: Mapping[str, Any]) -> str:
    """What belongs to one factor. block: keys of a factor, where the call says so."""
    if all(_is_one(views[name]) for name in _OF_INPUTS if name in views):
        return "per_tensor"
    if "descale_q" in views and not _is_one(views["descale_q"]):
        return "per_block"
    shape = views["descale_k"].shape
    if len(shape) == 1:
        return "per_head"
    if problem.get("pages", "none") != "none":
        return "per_token" if len(shape) == 3 else "kv_block"
    is_each = block is None and len(shape) == 3 and shape[2] == problem["seqlen_k"]
    return "per_token" if is_each else "kv_block"


def token_shape(problem: Mapping[str, Any]) -> Tuple[Tuple[int, ...], str]:
    """Of factors of tokens, and what its dimensions are."""
    heads = problem.get("heads_kv", problem["heads"])
    if problem.get("pages", "none") != "none":
        return ((problem["num_pages"], heads, problem["page_size"]),
                " (pages, heads, tokens of a page)")
    return (problem["batch"], heads, problem["seqlen_k"]), " (sequences, heads, keys)"


def _shape(kind: str, name: str, blocks: Blocks, problem: Mapping[str, Any]
           ) -> Tuple[Tuple[int, ...], str]:
    if kind == "per_tensor" or (kind != "per_block" and name == "descale_q"):
        return (1,), ""
    if kind == "per_head":
        return (problem.get("heads_kv", problem["heads"]),), " (heads)"
    if kind == "per_token":
        return token_shape(problem)
    heads = problem["heads"] if name == "descale_q" else problem.get("heads_kv", problem["heads"])
    if kind == "kv_block" and problem.get("pages", "none") != "none":
        return (problem["num_pages"], heads), " (pages, heads)"
    is_q = name == "descale_q"
    given = blocks[0 if is_q else 1]
    block = _BLOCK if given is None else given
    tokens = problem["seqlen_q" if is_q else "seqlen_k"]
    count = -(-tokens // max(block, 1))
    return ((problem["batch"], heads, count),
            f" (sequences, heads, blocks of {block} {'queries' if is_q else 'keys'})")
