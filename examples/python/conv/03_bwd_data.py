"""The gradient of a layer's input, checked by the definition of a gradient."""
import numpy as np

import tessera

random = np.random.default_rng(0)
x = random.standard_normal((2, 12, 12, 16), dtype=np.float32)
w = random.standard_normal((24, 3, 3, 8), dtype=np.float32)
layer = dict(stride=2, padding=1, groups=2)

y = tessera.conv(x, w, **layer)
grad_y = random.standard_normal(y.shape, dtype=np.float32)
# Images of 11 x 11 and of 12 x 12 both give 6 x 6, so that the size has to be said.
grad_x = tessera.conv_backward_data(grad_y, w, size=(12, 12), **layer)
least = tessera.conv_backward_data(grad_y, w, **layer)
print(f"x {x.shape} -> y {y.shape}; the gradient of x is {grad_x.shape}, the least {least.shape}")
assert grad_x.shape == x.shape and least.shape == (2, 11, 11, 16)

# <grad_y, conv(x, w)> is linear in x, so that its gradient by x gives it back.
left, right = np.vdot(grad_y.astype("float64"), y), np.vdot(grad_x.astype("float64"), x)
print(f"<grad_y, conv(x, w)> = {left:.4f}, <x, grad_x> = {right:.4f}")
assert abs(left - right) < 1e-3 * (1 + abs(left))

# Where a network branches, gradients are added: out += the gradient.
total = np.ones_like(x)
tessera.conv_backward_data(grad_y, w, out=total, beta=1, **layer)
assert abs(total - 1 - grad_x).max() < 1e-4
print("added to what was there: as expected")
