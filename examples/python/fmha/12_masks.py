"""Masks: causal from either corner, windows, sinks, a mask of one's own, ALiBi, a soft cap."""
import numpy as np

import tessera

random = np.random.default_rng(0)
queries, keys, hdim = 6, 8, 16
q = random.standard_normal((1, queries, 1, hdim), dtype=np.float32)
k, v = (random.standard_normal((1, keys, 1, hdim), dtype=np.float32) for _ in "kv")


def seen(**how):
    """Which keys each query sees: values that are one for a single key show its weight."""
    one_for_each = np.eye(keys, dtype=np.float32)[None, :, None]
    return tessera.attention(q, k, one_for_each, **how)[0, :, 0] > 0


for title, how in (("top_left: query i sees the keys up to i", {"mask": "top_left"}),
                   ("bottom_right: the last query sees the last key", {"mask": "bottom_right"}),
                   ("a window of 2 to the left", {"mask": "bottom_right", "window": (2, 0)}),
                   ("the same, and the first key is kept",
                    {"mask": "bottom_right", "window": (2, 0), "sink": 1}),
                   ("1 to the left and 1 to the right", {"mask": "top_left", "window": (1, 1)})):
    print(title)
    for row in seen(**how):
        print("   ", "".join("x" if key else "." for key in row))
assert (seen(mask="top_left") == np.tri(queries, keys, dtype=bool)).all()
assert (seen(mask="bottom_right") == np.tri(queries, keys, keys - queries, dtype=bool)).all()
last = seen(mask="bottom_right", window=(2, 0), sink=1)[-1]
assert np.flatnonzero(last).tolist() == [0, 5, 6, 7]

# Any other mask is a bias of 0 and minus infinity. A query that sees no key gets 0.
own = np.where(random.random((queries, keys)) < 0.5, 0, -np.inf).astype("float32")
own[2] = -np.inf
out, lse = tessera.attention(q, k, v, bias=own, return_lse=True)
print("a mask of one's own:", (seen(bias=own) == (own == 0)).all(), "query 2 gets", out[0, 2].max(),
      "and", lse[0, 0, 2])
assert (seen(bias=own) == (own == 0)).all() and (out[0, 2] == 0).all() and np.isneginf(lse[0, 0, 2])

# ALiBi is a bias that grows with the distance, by a slope for each head.
slopes = np.array([0.25], "float32")
far = abs(np.arange(queries)[:, None] + keys - queries - np.arange(keys))
alibi = tessera.attention(q, k, v, slopes=slopes)
error = abs(alibi - tessera.attention(q, k, v, bias=(-0.25 * far).astype("float32"))).max()
print(f"ALiBi and the same bias, element for element: {error:.1e} apart")
assert error < 1e-5

# A soft cap bends large scores: keys that are far ahead count less.
calm = tessera.attention(q * 20, k, v, soft_cap=2.0, return_lse=True)[1]
wild = tessera.attention(q * 20, k, v, return_lse=True)[1]
print(f"the largest log-sum-exp with a soft cap of 2: {calm.max():.2f}, without: {wild.max():.2f}")
assert calm.max() <= 2 + np.log(keys)
