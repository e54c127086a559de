"""Batches: one weight for all, one for each, broadcast, and vectors, as numpy.matmul has it."""
import numpy as np

import tessera

random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


def check(what, a, b):
    got, wanted = tessera.matmul(a, b), np.matmul(a, b)
    error = abs(got - wanted).max()
    print(f"{what:28} {a.shape} x {b.shape} -> {got.shape}, error {error:.1e}")
    assert got.shape == wanted.shape and error < 1e-3


check("one weight for all", draw(8, 16, 64), draw(64, 32))
check("a weight for each", draw(8, 16, 64), draw(8, 64, 32))
check("two leading dimensions", draw(2, 4, 16, 64), draw(2, 4, 64, 32))
check("one matrix, many weights", draw(16, 64), draw(8, 64, 32))
check("transposed in each batch", draw(8, 16, 64), draw(8, 32, 64).transpose(0, 2, 1))
check("a vector", draw(64), draw(64, 32))

# Leading dimensions that are not at one distance take several launches, and no copy.
heads = draw(4, 16, 8, 32).transpose(0, 2, 1, 3)  # (batch, head, token, feature)
check("heads before tokens", heads, draw(4, 8, 32, 16))
