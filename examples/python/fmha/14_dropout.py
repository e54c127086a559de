"""Dropout: which weights become 0, seeds and offsets, and the mean over many steps of training."""
import numpy as np

import tessera

random = np.random.default_rng(0)
batch, queries, keys, heads, hdim = 2, 5, 40, 3, 16
q = random.standard_normal((batch, queries, heads, hdim), dtype=np.float32)
k, v = (random.standard_normal((batch, keys, heads, hdim), dtype=np.float32) for _ in "kv")

# The random values say which weights are kept: a byte for each, below a threshold.
out, values = tessera.attention(q, k, v, dropout=0.25, seed=42, return_random=True)
kept = values < round(256 * (1 - 0.25))
print("query 0 of head 0 keeps", "".join("x" if one else "." for one in kept[0, 0, 0]))
print(f"of {kept.size} weights {kept.mean():.1%} are kept")
assert values.shape == (batch, heads, queries, keys) and values.dtype == np.uint8
assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / kept.size)

# By hand: weights that are kept grow, the others are 0.
scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(hdim)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights *= kept / 0.75 / weights.sum(-1, keepdims=True)
error = abs(out - np.einsum("bhqk,bkhd->bqhd", weights, v)).max()
print(f"the same by NumPy: {error:.1e} apart")
assert error < 1e-5

# The same seed and offset give the same bits again; a step of training counts the offset up.
again = tessera.attention(q, k, v, dropout=0.25, seed=42)
other = tessera.attention(q, k, v, dropout=0.25, seed=42, offset=1)
print("equal words, equal bits:", (again == out).all(), "- another offset:", (other == out).all())
assert (again == out).all() and not (other == out).all()

# Both words in an array, which a GPU's kernel reads when it runs.
words = np.array([42, 1], "uint64")
assert (tessera.attention(q, k, v, dropout=0.25, seed=words) == other).all()

# Over many steps the mean is the result without dropout.
plain = tessera.attention(q, k, v)
steps = 400
mean = sum(tessera.attention(q, k, v, dropout=0.25, seed=42, offset=step)
           for step in range(steps)) / steps
print(f"one step is up to {abs(out - plain).max():.2f} from the result without dropout, "
      f"the mean of {steps} up to {abs(mean - plain).max():.3f}")
assert abs(mean - plain).max() < abs(out - plain).max() / 4
