"""What is added to the scores: a bias of each element, one that is broadcast, ALiBi."""
import numpy as np
from definition import attend, check, draw

import tessera

batch, heads, queries, keys = 2, 4, 20, 33
q, k, v = draw(0, batch, queries, keys, heads, heads, 32)
random = np.random.default_rng(1)
for shape in ((batch, heads, queries, keys), (heads, queries, keys), (1, 1, queries, keys),
              (batch, 1, 1, keys), (queries, 1)):
    bias = random.standard_normal(shape, dtype=np.float32)
    check(f"a bias of {shape}", tessera.attention(q, k, v, bias=bias), attend(q, k, v, bias=bias),
          1e-5)

# A slope for each head, or for each sequence and head.
distance = abs(np.arange(queries)[:, None] + keys - queries - np.arange(keys))
for shape in ((heads,), (batch, heads)):
    slopes = random.random(shape, dtype=np.float32)
    bias = -slopes.reshape(-1, heads, 1, 1) * distance
    check(f"slopes of {shape}", tessera.attention(q, k, v, slopes=slopes),
          attend(q, k, v, bias=bias), 1e-5)

try:
    tessera.attention(q, k, v, bias=np.zeros((heads, queries, keys + 1), "float32"))
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("a bias for another number of keys was accepted")
