"""Tessera chooses, builds and runs tile kernels.

    import numpy, tessera
    a, b = numpy.ones((128, 768), "float32"), numpy.ones((768, 3072), "float32")
    c = tessera.matmul(a, b, activation="gelu")

See docs/python.md.
"""
from ._abi import Error
from ._append import append_kv
from ._attention import attention, attention_problem
from ._attention_backward import attention_backward
from ._commands import (command, commands, data, evaluate, measurements, report, search, sweep,
                        targets, train)
from ._conv import conv, conv_backward_data, conv_backward_weight, conv_problem
from ._decode import decode
from ._dispatcher import Dispatcher
from ._doctor import Report, doctor
from ._einsum import einsum
from ._explain import Explanation
from ._fmha_builder import FmhaProblemBuilder
from ._functions import autotune, explain, gemm, on_compile, preload, run, select
from ._gated import gelu_mul, silu_mul
from ._grouped import grouped_matmul
from ._kv_cache import KvCache
from ._matmul import matmul
from ._model import Model
from ._norms import layer_norm, rms_norm, softmax
from ._plan import Plan
from ._prepack import PackedWeight, prepack
from ._problem import Operand, Problem
from ._quantised import (gelu_mul_quantised, layer_norm_quantised, quantise, rms_norm_quantised,
                         silu_mul_quantised)
from ._record import record
from ._range_plan import RangePlan
from ._registry import KernelSet, Registry
from ._routing import order_by_expert, route
from ._scaled import scaled_matmul

__version__ = "0.1.0"

__all__ = ["Dispatcher", "Error", "Explanation", "FmhaProblemBuilder", "KernelSet", "KvCache",
           "Model", "Operand", "PackedWeight", "Plan", "Problem", "RangePlan", "Registry", "Report",
           "append_kv", "attention", "attention_backward", "attention_problem", "autotune",
           "command", "commands", "conv",
           "conv_backward_data", "conv_backward_weight", "conv_problem", "data", "decode", "doctor",
           "einsum", "evaluate", "explain", "gelu_mul", "gelu_mul_quantised", "gemm",
           "grouped_matmul",
           "layer_norm", "layer_norm_quantised", "matmul", "measurements", "on_compile",
           "order_by_expert", "preload", "prepack", "quantise", "record", "report", "rms_norm",
           "rms_norm_quantised", "route", "run",
           "scaled_matmul", "search", "select", "silu_mul", "silu_mul_quantised", "softmax",
           "sweep", "targets", "train"]
