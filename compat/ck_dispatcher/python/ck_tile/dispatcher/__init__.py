"""Dispatching by a learned model, as the documents show it:

    from ck_tile.dispatcher import GroupedConvRegistry, GroupedConvProblem
    registry = GroupedConvRegistry(arch="gfx950")
    result = registry.run(problem, input_tensor, weight_tensor)
"""
import pathlib
import sys

_PYTHON = str(pathlib.Path(__file__).resolve().parents[2])
if _PYTHON not in sys.path:
    sys.path.insert(0, _PYTHON)

from ctypes_utils import (Dispatcher, GemmResult, GemmRunner, KernelConfig,  # noqa: E402
                          Registry, Validator)
from fmha_utils import FmhaKernelConfig, FmhaProblem, FmhaRegistry, FmhaRunner  # noqa: E402
from grouped_conv_utils import (GpuGroupedConvRunner, GroupedConvKernelConfig,  # noqa: E402
                                GroupedConvProblem, GroupedConvRegistry, GroupedConvResult)

__all__ = ["Dispatcher", "FmhaKernelConfig", "FmhaProblem", "FmhaRegistry", "FmhaRunner",
           "GemmResult", "GemmRunner", "GpuGroupedConvRunner", "GroupedConvKernelConfig",
           "GroupedConvProblem", "GroupedConvRegistry", "GroupedConvResult", "KernelConfig",
           "Registry", "Validator"]
