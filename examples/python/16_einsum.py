"""Contractions: what numpy.einsum computes of two arrays, by the kernels of products."""
import numpy as np

import tessera

random = np.random.default_rng(0)
q = random.standard_normal((2, 10, 3, 16), dtype=np.float32)
k = random.standard_normal((2, 12, 3, 16), dtype=np.float32)
v = random.standard_normal((2, 12, 3, 16), dtype=np.float32)
w = random.standard_normal((3, 16, 20), dtype=np.float32)

for equation, a, b in (("bqhd,bkhd->bhqk", q, k), ("bqhd,hdo->bqo", q, w),
                       ("bkhd,bkhd->bh", k, v)):
    got, wanted = tessera.einsum(equation, a, b), np.einsum(equation, a, b)
    print(f"{equation:18} {got.shape}: error {abs(got - wanted).max():.1e}")
    assert abs(got - wanted).max() < 1e-3

# The second merges into a plain product; the problem says so.
for line in ("einsum bqhd,hdo->bqo sizes=b:2,q:10,h:3,d:16,o:20",
             "einsum bqhd,bkhd->bhqk sizes=b:2,q:10,h:3,d:16,k:12"):
    print(tessera.Problem(line).line)
