"""NumPy's types, also those that the package ml_dtypes gives it."""
from __future__ import annotations

import importlib
from typing import Any

from tessera import Error, _dtypes

FOREIGN = ("bf16", "fp8", "bf8")


def numpy_dtype(word: str, near: Any = None) -> Any:
    """NumPy's type for a word. `near`: that of an array at hand, which is taken where it is the
    word's. Imports ml_dtypes where the word needs it."""
    if word in FOREIGN and getattr(near, "name", "") != _dtypes.NAMES[word]:
        try:
            importlib.import_module("ml_dtypes")
        except ImportError:
            raise Error(f"arrays of {word} need the package ml_dtypes, which is not installed",
                        "unsupported") from None
    return _dtypes.numpy_dtype(word, near)
