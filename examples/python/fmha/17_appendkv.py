"""Appending to a cache of keys and values with a rotary embedding, then attention over it."""
import numpy as np

import tessera

random = np.random.default_rng(0)
batch, room, heads, heads_kv, hdim = 2, 128, 8, 2, 64


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


# Row p of the tables has the angles of position p.
rates = 10000.0 ** (-np.arange(hdim // 2) / (hdim // 2))
angles = np.outer(np.arange(room), rates)
cos, sin = np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def turned(x, positions):
    """Llama's embedding, plainly: x (tokens, heads, hdim)."""
    first, second = np.split(x, 2, axis=-1)
    c, s = cos[positions][:, None], sin[positions][:, None]
    return np.concatenate([first * c - second * s, second * c + first * s], axis=-1)


k_cache = np.full((batch, room, heads_kv, hdim), np.nan, "float32")
v_cache = np.full_like(k_cache, np.nan)
lengths = np.zeros(batch, "int32")
keys = [[] for _ in range(batch)]

# A prompt of other length for each sequence, packed one behind the other; then single tokens.
for counts in ([20, 33], [1, 1], [1, 1], [3, 2]):
    sums = np.cumsum([0] + counts)
    k_new, v_new, q = draw(sums[-1], heads_kv, hdim), draw(sums[-1], heads_kv, hdim), \
        draw(sums[-1], heads, hdim)
    wanted = [turned(q[a:b], n + np.arange(b - a)) for n, a, b in zip(lengths, sums, sums[1:])]
    out = tessera.append_kv(k_cache, v_cache, k_new, v_new, lengths, q=q, cos=cos, sin=sin,
                            rotary="half", seqlens_q=sums, out=q)
    error = abs(out - np.concatenate(wanted)).max()
    assert out is q and error < 1e-5, error
    for b in range(batch):
        keys[b].append(turned(k_new[sums[b]:sums[b + 1]],
                              lengths[b] + np.arange(counts[b])))
    lengths += np.array(counts, "int32")

for b in range(batch):
    error = abs(k_cache[b, :lengths[b]] - np.concatenate(keys[b])).max()
    print(f"sequence {b}: {lengths[b]} keys, largest error {error:.1e}")
    assert error < 1e-5
    assert np.isnan(k_cache[b, lengths[b]:]).all() and np.isnan(v_cache[b, lengths[b]:]).all()

attended = tessera.attention(draw(batch, 1, heads, hdim), k_cache, v_cache, seqlens_q=[1, 1],
                             seqlens_k=lengths)
assert np.isfinite(attended).all()

try:
    tessera.append_kv(k_cache, v_cache, draw(batch, 100, heads_kv, hdim),
                      draw(batch, 100, heads_kv, hdim), lengths)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("100 tokens went into less room")
