"""A grouped convolution beside the plain loop, then layers in float16 with their TFLOP/s.

An argument is the target of the layers: sm90a times them on a GPU, with 32 images in place of 1.
"""
import sys

import numpy as np

import tessera

random = np.random.default_rng(0)
x = random.standard_normal((2, 9, 10, 12), dtype=np.float32)  # images, height, width, channels
w = random.standard_normal((8, 3, 3, 6), dtype=np.float32)    # filters, height, width, c / groups


def plain_loop(x, w, groups):
    """3x3 with a border of zeros."""
    padded = np.pad(x.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, height, width, c = x.shape
    out = np.zeros((n, height, width, groups, len(w) // groups))
    for row in range(3):
        for column in range(3):
            part = padded[:, row:row + height, column:column + width].reshape(
                n, height, width, groups, c // groups)
            filters = w[:, row, column].reshape(groups, -1, c // groups)
            out += np.einsum("nhwgc,gkc->nhwgk", part, filters)
    return out.reshape(n, height, width, -1)


y = tessera.conv(x, w, padding=1, groups=2)
error = abs(y - plain_loop(x, w, 2)).max()
print(f"conv of {x.shape} with {w.shape} in 2 groups: {y.shape}, {error:.1e} from the plain loop")
assert error < 1e-4

here = tessera.Dispatcher(*sys.argv[1:])
images = 1 if here.target["backend"] == "cpu" else 32
for name, fields in (("3x3", dict(c=64, k=64, filter=3, padding=1)),
                     ("3x3 in 32 groups", dict(c=128, k=128, groups=32, filter=3, padding=1)),
                     ("1x1", dict(c=64, k=256, filter=1))):
    plan = here.plan(tessera.conv_problem(n=images, size=(56, 56), dtype="fp16", **fields))
    result = plan.bench(rounds=5)  # on random operands; the result is verified first
    print(f"{name}, {images} x 56 x 56: {result['gflops'] / 1000:.3f} TFLOP/s by {plan.kernel}")

# float16 beside float32, in sums that stay small.
x = random.uniform(-1, 1, (1, 14, 14, 64)).astype("float16")
w = random.uniform(-1, 1, (64, 3, 3, 64)).astype("float16") / np.float16(16)
narrow = tessera.conv(x, w, padding=1)
wide = tessera.conv(x.astype("float32"), w.astype("float32"), padding=1)
worst = abs(narrow - wide).max()
print(f"float16 beside float32: max_abs_diff {worst:.6f}")
assert worst < 0.002
