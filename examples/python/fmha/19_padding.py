"""Sequences with room behind them, which is neither read nor written, and heads of any length."""
import numpy as np
from definition import attend, check, draw

import tessera

room, lengths = 24, [24, 1, 13, 0]
q, k, v = draw(0, len(lengths), room, room, 4, 2, 32)
for x in (q, k, v):
    for i, length in enumerate(lengths):
        x[i, length:] = np.nan
out = np.full(q.shape, 7, "float32")
tessera.attention(q, k, v, mask="top_left", seqlens_q=lengths, seqlens_k=lengths, out=out)
for i, length in enumerate(lengths):
    assert (out[i, length:] == 7).all()
    if length > 0:
        part = [x[i:i + 1, :length] for x in (q, k, v)]
        check(f"a sequence of {length} in room for {room}", out[i:i + 1, :length],
              attend(*part, seen=np.tri(length, dtype=bool)), 1e-5)

# Heads of any length: nothing is padded to a power of two.
for hdim in (8, 20, 33):
    q, k, v = draw(1, 1, 5, 9, 2, 2, hdim)
    check(f"heads of {hdim}", tessera.attention(q, k, v), attend(q, k, v), 1e-5)
