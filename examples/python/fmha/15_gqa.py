"""Groups of query heads that share keys and values (GQA and MQA), in a step of decoding."""
import numpy as np

import tessera

random = np.random.default_rng(0)


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


heads, hdim, keys = 8, 64, 200
q = draw(2, 1, heads, hdim)  # one new token of two sequences
for heads_kv in (8, 2, 1):
    k, v = draw(2, keys, heads_kv, hdim), draw(2, keys, heads_kv, hdim)
    shared = tessera.attention(q, k, v)
    # The same with a copy of the keys and values for each query head.
    copies = [np.repeat(x, heads // heads_kv, axis=2) for x in (k, v)]
    error = abs(shared - tessera.attention(q, *copies)).max()
    print(f"{heads} query heads over {heads_kv}: {(k.nbytes + v.nbytes) // 1024} KiB of keys and "
          f"values in place of {sum(x.nbytes for x in copies) // 1024}, {error:.1e} apart")
    assert error < 1e-5

# A cache with room for more: views of its filled part are taken as they lie.
cache = np.full((2, 2, 512, 2, hdim), np.nan, "float32")  # keys and values, sequences, room, ...
cache[:, :, :keys] = draw(2, 2, keys, 2, hdim)
whole = tessera.attention(q, cache[0, :, :keys], cache[1, :, :keys])
assert np.isfinite(whole).all()

# Keys in two parts, put together by their log-sum-exps.
parts = [tessera.attention(q, cache[0, :, part], cache[1, :, part], return_lse=True)
         for part in (slice(0, 77), slice(77, keys))]
total = np.logaddexp(parts[0][1], parts[1][1])
joined = sum(out * np.exp(lse - total).swapaxes(1, 2)[..., None] for out, lse in parts)
error = abs(joined - whole).max()
print(f"keys in two parts: {error:.1e} from the whole")
assert error < 1e-5

try:
    tessera.attention(q, draw(2, keys, 3, hdim), draw(2, keys, 3, hdim))
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("8 heads over 3 were accepted")
