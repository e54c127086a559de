"""Gradients with dropout: the same seed and offset drop the weights that attention dropped."""
import numpy as np
from definition import check, draw, gradients

import tessera

q, k, v = draw(0, 2, 24, 40, 4, 2, 32)
dout = np.random.default_rng(1).standard_normal(q.shape, dtype=np.float32)
for p in (0.1, 0.5):
    how = {"dropout": p, "seed": 42, "offset": 7}
    out, lse, values = tessera.attention(q, k, v, return_lse=True, return_random=True, **how)
    found = tessera.attention_backward(dout, q, k, v, out, lse, **how)

    # What a weight is multiplied with: 0, or so much that the mean stays.
    kept = round(256 * (1 - p))
    factors = np.where(values < kept, 256 / kept, 0.0)
    print(f"p={p}: {(factors == 0).mean():.1%} of the weights are dropped")
    for name, got, want in zip(("dq", "dk", "dv"), found,
                               gradients(dout, q, k, v, factors=factors)):
        check(f"{name} with p={p}", got, want, 1e-4)

    # Another seed drops others, and its gradients belong to another step.
    other = tessera.attention_backward(dout, q, k, v, out, lse, dropout=p, seed=43, offset=7)
    assert not np.array_equal(other[2], found[2])

# Seed and offset in an array, which a GPU's kernel reads when it runs.
again = tessera.attention_backward(dout, q, k, v, out, lse, dropout=0.5,
                                   seed=np.array([42, 7], "uint64"))
assert all(map(np.array_equal, again, found))

# A value whose weights are all dropped for a query gets nothing from it: dv is a sum over the
# queries that keep it.
keeps = (factors[:, :, :, 0] != 0).sum()
print(f"key 0 is kept by {keeps} of {factors[:, :, :, 0].size} queries of all heads")
assert 0 < keeps < factors[:, :, :, 0].size
