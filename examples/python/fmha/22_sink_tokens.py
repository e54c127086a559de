"""Attention sinks: a window slides, and the first tokens stay visible."""
import numpy as np
from definition import attend, check, draw

import tessera

tokens, left, sink = 40, 8, 3
q, k, v = draw(0, 1, tokens, tokens, 4, 2, 32)
distance = np.arange(tokens)[:, None] - np.arange(tokens)
near = (distance >= 0) & (distance <= left)
for count in (0, sink):
    seen = near | ((distance >= 0) & (np.arange(tokens) < count))
    out = tessera.attention(q, k, v, mask="top_left", window=(left, 0), sink=count)
    check(f"{count} sinks, the last query sees {seen[-1].sum()} of {tokens} keys", out,
          attend(q, k, v, seen=seen), 1e-5)

# Decoding: a cache that keeps the sinks and the window gives the same as the whole one.
last = tessera.attention(q[:, -1:], k, v, mask="bottom_right", window=(left, 0), sink=sink)
kept = np.r_[0:sink, tokens - left - 1:tokens]
small = tessera.attention(q[:, -1:], k[:, kept], v[:, kept])
check(f"a cache of {len(kept)} tokens in place of {tokens}", small, last, 1e-5)
