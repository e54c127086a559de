"""Later parts of several prompts at once: packed queries of any lengths over a cache of pages. Its
table is a row for each sequence (vLLM) or a list of all (SGLang)."""
import numpy as np
from definition import attend, check

import tessera

random = np.random.default_rng(0)
heads, heads_kv, hdim, page_size = 8, 2, 32, 16
queries, keys = [7, 1, 20], [40, 33, 20]  # of each sequence, all keys with the new ones
counts = [-(-n // page_size) for n in keys]
pages = random.permutation(sum(counts) + 4)[:sum(counts)].astype("int32")
k, v = (random.standard_normal((sum(counts) + 4, page_size, heads_kv, hdim), dtype=np.float32)
        for _ in range(2))
starts = np.cumsum([0, *counts])
table = np.zeros((len(keys), max(counts)), "int32")
for b, count in enumerate(counts):
    table[b, :count] = pages[starts[b]:starts[b + 1]]

sums = np.cumsum([0, *queries])
q = random.standard_normal((sums[-1], heads, hdim), dtype=np.float32)
how = {"seqlens_q": sums, "seqlens_k": keys, "mask": "bottom_right"}
out = tessera.attention(q, k, v, page_table=table, **how)
for b, (count, length) in enumerate(zip(queries, keys)):
    rows = slice(sums[b], sums[b + 1])
    own = [x[pages[starts[b]:starts[b + 1]]].reshape(1, -1, heads_kv, hdim)[:, :length]
           for x in (k, v)]
    seen = np.tri(count, length, length - count, dtype=bool)
    check(f"{count} queries over {length} keys", out[None, rows],
          attend(q[None, rows], *own, seen=seen), 1e-5)

assert (tessera.attention(q, k, v, page_table=pages, page_starts=starts, **how) == out).all()

# Runs of 16 bytes, as some caches have them.
runs = (k.reshape(-1, page_size, heads_kv, hdim // 4, 4).transpose(0, 2, 3, 1, 4),
        v.reshape(-1, page_size // 4, 4, heads_kv, hdim).transpose(0, 3, 1, 4, 2))
runs = [np.ascontiguousarray(x) for x in runs]
assert (tessera.attention(q, *runs, page_table=table, **how) == out).all()
print("a table, a list and runs of 16 bytes give the same bits")

table[1, 2] = 9000
try:
    tessera.attention(q, k, v, page_table=table, **how)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("page 9000 was read")
