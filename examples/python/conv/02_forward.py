"""Forward: strides, dilation, unequal padding, one to three dimensions, layouts, a fused layer."""
import numpy as np

import tessera

random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


sound = tessera.conv(draw(2, 1000, 16), draw(32, 2, 16), dilation=8, padding=((8, 0),))
print("a causal layer over sound:", sound.shape)
clip = tessera.conv(draw(1, 4, 12, 12, 3), draw(8, 3, 5, 5, 3), stride=(1, 2, 2), padding=(1, 2, 2))
print("a layer over a clip of 4 frames:", clip.shape)
assert sound.shape == (2, 1000, 32) and clip.shape == (1, 4, 6, 6, 8)

# The same layer with channels first, as PyTorch has it. Views cost nothing: the memory stays as it
# is, and so does the result's.
x, w = draw(2, 14, 14, 8), draw(16, 3, 3, 8)
last = tessera.conv(x, w, stride=2, padding=1)
first = tessera.conv(np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
                     np.ascontiguousarray(w.transpose(0, 3, 1, 2)), stride=2, padding=1,
                     layout="nchw")
view = tessera.conv(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), stride=2, padding=1,
                    layout="nchw")
error = abs(last.transpose(0, 3, 1, 2) - first).max()
print(f"channels last and first: {last.shape} and {first.shape}, {error:.1e} apart")
assert error < 1e-4 and np.array_equal(view, last.transpose(0, 3, 1, 2))

# relu(conv + bias) + residual in one pass.
bias, residual = draw(16), draw(*last.shape)
fused = tessera.conv(x, w, stride=2, padding=1, bias=bias, activation="relu", residual=residual)
error = abs(fused - (np.maximum(last + bias, 0) + residual)).max()
print(f"with bias, relu and residual: {error:.1e} from NumPy's")
assert error < 1e-4

try:
    tessera.conv(x, w, groups=3)
except tessera.Error as problem:
    print(f"{problem.code}: {problem}")
else:
    raise SystemExit("groups that do not fit were convolved")
