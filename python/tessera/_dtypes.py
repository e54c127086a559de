"""Types by name: Tessera's words, and the names that NumPy and ml_dtypes have for them."""
from __future__ import annotations

import sys
from typing import Any, Dict

from ._values import Error, shown

WORDS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8",
         "float8_e5m2": "bf8", "int8": "int8", "int32": "int32"}
NAMES = {word: name for name, word in WORDS.items()}
NAMES["tf32"] = "float32"  # stored alike

# DLPack's (code, bits) of them.
DLPACK = {(2, 32): "fp32", (2, 16): "fp16", (4, 16): "bf16", (10, 8): "fp8", (12, 8): "bf8",
          (0, 8): "int8", (0, 32): "int32"}
# The type of a product's result, where it is not that of its operands.
RESULTS = {"int8": "int32", "fp8": "fp16", "bf8": "fp16"}
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "int8": 1, "int32": 4}


def unknown(what: str, name: str) -> Error:
    hint = ""
    if name == "float64":
        hint = "; convert it with .astype('float32')"
    elif name.startswith((">", "<", "=")):
        hint = "; its bytes are not in this machine's order"
    return Error(f"{what} has the type {name}, which Tessera does not know{hint}; it knows " +
                 ", ".join(WORDS))


_seen: Dict[Any, str] = {}


def word_of(dtype: Any, what: str = "the array") -> str:
    """Tessera's word for a dtype object, a NumPy scalar type or a name."""
    try:
        return _seen[dtype]
    except Exception:  # not seen, or not hashable
        word = _find_word(dtype, what)
    _seen[dtype] = word
    return word


def _find_word(dtype: Any, what: str) -> str:
    if isinstance(dtype, str) and dtype in NAMES:
        return dtype
    try:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        name = str(name).rpartition(".")[2]  # "torch.float32"
    except Exception:  # an object that has no such word
        name = ""
    if not name.isidentifier():
        raise unknown(what, shown(dtype))
    if not getattr(dtype, "isnative", True):
        name = str(getattr(dtype, "str", name))
    if name not in WORDS:
        raise unknown(what, name)
    return WORDS[name]


def numpy_dtype(word: str, near: Any = None) -> Any:
    """NumPy's dtype for a word. `near`: a dtype of the caller's, which is taken where it fits."""
    import numpy
    name = NAMES[word]
    if getattr(near, "name", None) == name:
        return near
    try:
        return numpy.dtype(name)
    except TypeError:  # ml_dtypes gives names to NumPy when it is imported
        ml_dtypes = sys.modules.get("ml_dtypes")
        if ml_dtypes is None:
            raise Error(f"an array of {name} needs the package ml_dtypes, imported by the caller",
                        "unsupported") from None
        return numpy.dtype(getattr(ml_dtypes, name))
