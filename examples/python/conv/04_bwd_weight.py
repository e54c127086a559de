"""The gradient of a layer's filters, of a whole batch and in two halves; then a step of descent."""
import numpy as np

import tessera

random = np.random.default_rng(0)
x = random.standard_normal((4, 14, 14, 24), dtype=np.float32)
w = random.standard_normal((16, 3, 3, 24), dtype=np.float32) / 16
target = random.standard_normal((4, 14, 14, 16), dtype=np.float32)


def loss(w):
    return float(((tessera.conv(x, w, padding=1) - target)**2).mean())


grad_y = 2 * (tessera.conv(x, w, padding=1) - target) / target.size
grad_w = tessera.conv_backward_weight(x, grad_y, filter=3, padding=1)
print(f"the gradient of the filters: {grad_w.shape}")
assert grad_w.shape == w.shape

halves = tessera.conv_backward_weight(x[:2], grad_y[:2], filter=3, padding=1)
tessera.conv_backward_weight(x[2:], grad_y[2:], out=halves, beta=1, padding=1)
error = abs(halves - grad_w).max() / abs(grad_w).max()
print(f"two halves of the batch, added: {error:.1e} of the largest element apart")
assert error < 1e-4

step = 0.5 / (grad_w**2).sum()
before, after = loss(w), loss(w - 0.1 * step * grad_w)
print(f"loss before and after a step: {before:.4f}, {after:.4f}")
assert after < before
