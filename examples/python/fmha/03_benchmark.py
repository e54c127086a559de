"""Times attention beside NumPy, and counts what is reached of the machine: TFLOP/s, GB/s.

An argument is the target: sm90a times it on a GPU, without NumPy.
"""
import sys
import time

import numpy as np
from definition import draw

import tessera

here = tessera.Dispatcher(*sys.argv[1:], threads=1)
on_gpu = here.target["backend"] != "cpu"
here.set_timing(cold=1, repeat=5)
batch, heads, hdim = 1, 4, 64
keys = 4096 if on_gpu else 192


def softmax_attention(q, k, v):
    """In float32, as one writes it in NumPy; heads first."""
    scores = q @ k.swapaxes(2, 3) * hdim**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


print(f"{'queries':>7} {'us':>9} {'TFLOP/s':>9} {'GB/s':>7} {'NumPy, us':>10}")
for queries in (1, 16, keys):
    problem = tessera.attention_problem(batch=batch, heads=heads, seqlen_q=queries, seqlen_k=keys,
                                        hdim=hdim, dtype="bf16" if on_gpu else "fp32")
    result = here.plan(problem).bench()  # the result is verified first
    q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2))
               for x in draw(0, batch, queries, keys, heads, heads, hdim))
    times = []
    for _ in range(0 if on_gpu else 5):
        start = time.perf_counter()
        softmax_attention(q, k, v)
        times.append(time.perf_counter() - start)
    moved = (2 * queries + 2 * keys) * batch * heads * hdim * (2 if on_gpu else 4)
    seconds = result["median_seconds"]
    print(f"{queries:7} {seconds * 1e6:9.1f} {result['gflops'] * 1e-3:9.3g} "
          f"{moved / seconds * 1e-9:7.1f} {sorted(times)[2] * 1e6 if times else 0:10.1f}")
    assert result["gflops"] > 0 and seconds > 0
