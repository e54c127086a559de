"""Many random calls from several threads at once, each compared with NumPy."""
import os
import random
import threading
import time

import numpy as np

import tessera

SECONDS, THREADS = 3.0, 4
SEED = int(os.environ.get("TESSERA_TEST_SEED", "0")) or random.randrange(1, 2**31)
dispatcher = tessera.Dispatcher(threads=1)
calls, wrong = [], []


def one_call(draw):
    m, n, k = (int(x) for x in draw.integers(1, 96, 3))
    a = draw.standard_normal((m, k), dtype=np.float32)
    b = draw.standard_normal((k, n), dtype=np.float32)
    bias = draw.standard_normal(n, dtype=np.float32)
    got = tessera.matmul(a, b, bias=bias, activation="relu", dispatcher=dispatcher)
    sums = a.astype(np.float64) @ b + bias
    # Each of k + 2 roundings loses at most 2^-24 of the sum of the products' sizes.
    bound = (k + 4) * 2.0**-24 * (abs(a).astype(np.float64) @ abs(b) + abs(bias))
    if (abs(got - np.maximum(sums, 0)) > bound).any():
        wrong.append((m, n, k))


def work(number):
    draw = np.random.default_rng((SEED, number))
    done, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        one_call(draw)
        done += 1
    calls.append(done)


print(f"TESSERA_TEST_SEED={SEED}, {THREADS} threads, {SECONDS} seconds")
threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{sum(calls)} calls of as many shapes, {len(wrong)} wrong")
if wrong or len(calls) != THREADS:
    raise SystemExit(f"wrong results for (m, n, k) = {wrong[:5]}")
