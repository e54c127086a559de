"""Sequences of several lengths: packed one behind the other, or padded to one length."""
import numpy as np

import tessera

random = np.random.default_rng(0)
heads, heads_kv, hdim = 4, 2, 32
lengths = [5, 17, 0, 40]
sums = np.concatenate([[0], np.cumsum(lengths)])  # where each sequence begins, and the end

q = random.standard_normal((sums[-1], heads, hdim), dtype=np.float32)
k, v = (random.standard_normal((sums[-1], heads_kv, hdim), dtype=np.float32) for _ in "kv")
packed = tessera.attention(q, k, v, mask="top_left", seqlens_q=sums, seqlens_k=sums)
for i, (first, end) in enumerate(zip(sums, sums[1:])):
    if first == end:
        continue
    alone = tessera.attention(*(x[None, first:end] for x in (q, k, v)), mask="top_left")[0]
    error = abs(packed[first:end] - alone).max()
    print(f"sequence {i} of {end - first} tokens: {error:.1e} from the same alone")
    assert error < 1e-5

# The same padded to the longest one: rows behind a sequence's end are not read, nor written.
room = max(lengths)


def pad(x):
    padded = np.full((len(lengths), room, *x.shape[1:]), np.nan, "float32")
    for i, length in enumerate(lengths):
        padded[i, :length] = x[sums[i]:sums[i + 1]]
    return padded


padded = tessera.attention(pad(q), pad(k), pad(v), mask="top_left", seqlens_q=lengths,
                           seqlens_k=lengths)
for i, length in enumerate(lengths):
    assert abs(padded[i, :length] - packed[sums[i]:sums[i + 1]]).max(initial=0) < 1e-5
    assert (padded[i, length:] == 0).all()  # in a new result
print(f"padded to {room}: {padded.shape[0] * room} rows in place of {len(q)}, the same results")

# Sequences of few queries are left out, because another kernel has done them.
out = np.full(padded.shape, 7, "float32")
tessera.attention(pad(q), pad(k), pad(v), mask="top_left", seqlens_q=lengths, seqlens_k=lengths,
                  skip_q=5, out=out)
assert (out[0] == 7).all() and (out[1, :17] != 7).all()

try:
    tessera.attention(q, k, v, seqlens_q=sums - 1, seqlens_k=sums)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("prefix sums that do not begin with 0 were accepted")
