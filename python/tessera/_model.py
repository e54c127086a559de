"""Learned models: predicting and ranking kernels."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, List, Union

from . import _abi, _values
from ._checks import checked
from ._problem import Problem, as_problem


class Model(_abi.Handle):
    """A learned model: Model.load(folder), or the file of one, model.txt or model.txt.gz."""

    _kind = "model"

    @checked
    def __init__(self, path: str) -> None:
        self._make("tsr_model_load", _abi.encode(path))

    @classmethod
    def load(cls, path: str) -> "Model":
        return cls(path)

    def manifest(self) -> Dict[str, Any]:
        """What the model learned, and from which data."""
        return json.loads(_abi.text("tsr_model_json", self))

    @checked
    def predict(self, problem: Union[str, Problem], kernel: str, *, threads: int = 0,
                **fields: Any) -> float:
        """The predicted seconds of a kernel. A model that predicts no times gives a score, of which
        the least is the best. threads: 0 means those of the model's data."""
        seconds = ctypes.c_double()
        _abi.call("tsr_model_predict", self, as_problem(problem, **fields), _abi.encode(kernel),
                  _values.whole_int("threads", threads), ctypes.byref(seconds))
        return seconds.value

    @checked
    def predict_all(self, problem: Union[str, Problem], kernels: List[str], *, threads: int = 0,
                    **fields: Any) -> List[float]:
        """What predict() gives of each kernel, at about the price of one."""
        names = (ctypes.c_char_p * len(kernels))(*(_abi.encode(kernel) for kernel in kernels))
        seconds = (ctypes.c_double * len(kernels))()
        _abi.call("tsr_model_predict_all", self, as_problem(problem, **fields), names,
                  len(kernels), _values.whole_int("threads", threads), seconds)
        return list(seconds)

    @checked
    def rank(self, problem: Union[str, Problem], *, threads: int = 0, top: int = 0, **fields: Any
             ) -> List[Dict[str, Any]]:
        """[{"kernel", "predicted"}, ...]: the `top` best legal kernels (0: all), best first."""
        text = _abi.text("tsr_model_rank", self, as_problem(problem, **fields),
                         _values.whole_int("threads", threads), _values.whole("top", top, 0))
        return json.loads(text)["kernels"]
