"""The gradients of attention, checked by their definition and by finite differences."""
import numpy as np
from definition import attend, check, draw, gradients

import tessera

# Causal, four query heads that share two heads of keys and values.
q, k, v = draw(0, 2, 24, 30, 4, 2, 32)
dout = np.random.default_rng(1).standard_normal((2, 24, 4, 32), dtype=np.float32)
seen = np.arange(30) <= np.arange(24)[:, None] + 6
how = {"mask": "bottom_right"}
out, lse = tessera.attention(q, k, v, return_lse=True, **how)
found = tessera.attention_backward(dout, q, k, v, out, lse, **how)
for name, got, want in zip(("dq", "dk", "dv"), found, gradients(dout, q, k, v, seen=seen)):
    check(name, got, want, 1e-4)

# The slope of a loss along a random direction. The loss is the sum of products with dout.
step, random = 1e-4, np.random.default_rng(2)
for name, at, gradient in zip("qkv", range(3), found):
    way, inputs = random.standard_normal((q, k, v)[at].shape), [q, k, v]
    ends = []
    for side in (-step, step):
        inputs[at] = (q, k, v)[at] + side * way
        ends.append((attend(*inputs, seen=seen) * dout).sum())
    check(f"the slope by {name}", (gradient * way).sum(), (ends[1] - ends[0]) / (2 * step), 1e-2)

# Packed sequences: each has gradients of its own.
sums_q, sums_k = np.array([0, 9, 24]), np.array([0, 20, 30])
packed = [x[0] for x in (q, k, v)]
out, lse = tessera.attention(*packed, seqlens_q=sums_q, seqlens_k=sums_k, return_lse=True)
found = tessera.attention_backward(dout[0], *packed, out, lse, seqlens_q=sums_q, seqlens_k=sums_k)
for i in range(2):
    of_q, of_k = (slice(sums[i], sums[i + 1]) for sums in (sums_q, sums_k))
    parts = dout[:1, of_q], q[:1, of_q], k[:1, of_k], v[:1, of_k]
    for name, got, want in zip(("dq", "dk", "dv"), found, gradients(*parts)):
        check(f"{name} of sequence {i}", got[of_q if name == "dq" else of_k], want[0], 1e-4)

# Equal operands give equal bits, whatever the number of threads.
one = tessera.Dispatcher(threads=1)
out, lse = tessera.attention(q, k, v, return_lse=True, dispatcher=one, **how)
both = [tessera.attention_backward(dout, q, k, v, out, lse, dispatcher=d, **how)
        for d in (one, tessera.Dispatcher(threads=2))]
print("equal bits with one thread and two:", all(map(np.array_equal, *both)))
assert all(map(np.array_equal, *both))
