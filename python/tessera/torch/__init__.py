"""Tessera for PyTorch: operators, Linear and Conv modules, and optimize(model).

    import torch, tessera.torch
    layer = tessera.torch.Linear(768, 3072, activation="gelu")
    model, report = tessera.torch.optimize(model.eval().requires_grad_(False))

See docs/torch.md. Nothing is compiled against PyTorch.
"""
from . import _flops
from ._append import append_kv
from ._attention import attention, scaled_dot_product_attention
from ._conv import Conv1d, Conv2d, Conv3d, channels_last, conv1d, conv2d, conv3d
from ._conv_transpose import (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, conv_transpose1d,
                              conv_transpose2d, conv_transpose3d)
from ._einsum import einsum
from ._functions import layer_norm, linear, matmul, rms_norm, softmax
from ._gated import gelu_mul, silu_mul
from ._gated_linear import gated_linear
from ._grouped import grouped_mm
from ._linear import Linear
from ._moe import fused_moe
from ._optimize import Kept, Layer, Report, optimize
from ._paired import compare, worst_error
from ._quantised import (gelu_mul_quantised, layer_norm_quantised, quantise, rms_norm_quantised,
                         silu_mul_quantised)
from ._routing import route
from ._run import are_batch_invariant_kernels_enabled, use_batch_invariant_kernels
from ._scaled import scaled_grouped_mm, scaled_mm

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
           "Kept", "Layer", "Linear", "Report", "append_kv", "are_batch_invariant_kernels_enabled",
           "attention", "channels_last", "compare", "conv1d", "conv2d", "conv3d",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "fused_moe",
           "gated_linear",
           "gelu_mul", "gelu_mul_quantised", "grouped_mm", "layer_norm", "layer_norm_quantised",
           "linear", "matmul", "optimize", "quantise", "rms_norm", "rms_norm_quantised", "route",
           "scaled_dot_product_attention", "scaled_grouped_mm", "scaled_mm", "silu_mul",
           "silu_mul_quantised", "softmax", "use_batch_invariant_kernels", "worst_error"]

_flops.register()
