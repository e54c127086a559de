"""Tessera as an execution provider of ONNX Runtime, a plugin that is compiled at its first use,
without ONNX Runtime's headers.

    options = onnxruntime.SessionOptions()
    tessera_onnxruntime.add_to(options)
    session = onnxruntime.InferenceSession("model.onnx", options)

Nodes that Tessera cannot take stay with ONNX Runtime's own provider; report_of() says which and
why.
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, Optional

import onnxruntime

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "native"))
import build  # noqa: E402

NAME = "TesseraExecutionProvider"
_SOURCES = ("provider.cc", "node.cc", "works.cc")
_OLDEST = (1, 24)  # kApiVersion of ort_abi.h


def _check_version() -> None:
    """The library itself is asked too, when it loads the plugin."""
    found = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if found < _OLDEST:
        raise RuntimeError(f"Tessera's provider needs ONNX Runtime {_OLDEST[0]}.{_OLDEST[1]} or "
                           f"newer, got {onnxruntime.__version__}")


def register() -> None:
    """Compiles the plugin where that was not done, and registers it; later calls do nothing."""
    _check_version()
    if not any(device.ep_name == NAME for device in onnxruntime.get_ep_devices()):
        library = build.build([_HERE / source for source in _SOURCES])
        onnxruntime.register_execution_provider_library(NAME, str(library))


def add_to(options: onnxruntime.SessionOptions, report: Optional[str] = None,
           threads: int = 0) -> None:
    """Makes Tessera the first provider of a session. report: a file that gets what was taken and
    what was left, as JSON. threads: the most threads of a launch; 0: OpenMP's own limit."""
    register()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    given: Dict[str, str] = {"threads": str(threads)}
    if report is not None:
        given["report"] = str(report)
    options.add_provider_for_devices(devices[:1], given)


def report_of(file: str) -> Dict[str, Any]:
    """{"taken": [{"node", "op", "output"}], "left": [the same with "why"]}"""
    return json.loads(pathlib.Path(file).read_text())
