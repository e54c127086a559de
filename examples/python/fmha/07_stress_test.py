"""Many random configurations of attention from several threads, each compared with NumPy."""
import os
import random
import threading

import numpy as np
from definition import attend, draw

import tessera

CONFIGURATIONS, THREADS = 48, 4
SEED = int(os.environ.get("TESSERA_TEST_SEED", "0")) or random.randrange(1, 2**31)
dispatcher = tessera.Dispatcher(threads=1)
done, wrong = [], []


def one_call(number):
    pick = np.random.default_rng((SEED, number))
    heads_kv, group = (int(x) for x in pick.integers(1, 4, 2))
    batch, queries, keys = (int(x) for x in pick.integers((1, 1, 1), (4, 50, 80)))
    hdim, hdim_v = (8 * int(x) for x in pick.integers(1, 17, 2))
    q, k, v = draw((SEED, number, 1), batch, queries, keys, heads_kv * group, heads_kv, hdim,
                   hdim_v)
    is_causal = bool(pick.integers(2)) and queries <= keys
    mask = "bottom_right" if is_causal else None
    seen = np.tri(queries, keys, keys - queries, dtype=bool) if is_causal else None
    got = tessera.attention(q, k, v, mask=mask, dispatcher=dispatcher)
    error = abs(got - attend(q, k, v, seen=seen)).max()
    done.append(number)
    if not error < 1e-4:
        wrong.append((number, error))


def work(first):
    for number in range(first, CONFIGURATIONS, THREADS):
        one_call(number)


print(f"TESSERA_TEST_SEED={SEED}, {THREADS} threads")
threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{len(done)} configurations, {len(wrong)} wrong")
if wrong or len(done) != CONFIGURATIONS:
    raise SystemExit(f"wrong results: {wrong[:5]}")
