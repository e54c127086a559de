"""Attention among NumPy's functions: a layer of a network, views, results in place."""
import numpy as np
from definition import attend, check

import tessera

random = np.random.default_rng(0)
batch, tokens, heads, hdim = 2, 12, 4, 16
width = heads * hdim
x = random.standard_normal((batch, tokens, width), dtype=np.float32)
into, back = (random.standard_normal(shape, dtype=np.float32) * np.float32(width**-0.5)
              for shape in ((width, 3 * width), (width, width)))

# One product gives q, k and v, which are views of its result.
q, k, v = (x @ into).reshape(batch, tokens, 3, heads, hdim).transpose(2, 0, 1, 3, 4)
mixed = tessera.attention(q, k, v, mask="top_left")
y = x + mixed.reshape(batch, tokens, width) @ back
wanted = attend(q, k, v, seen=np.tri(tokens, dtype=bool))
check("a layer", y, x + wanted.reshape(batch, tokens, width) @ back, 1e-5)

# Into a part of an array that is there; the rest stays.
whole = np.full((batch, tokens + 2, heads, hdim), 7, "float32")
assert tessera.attention(q, k, v, mask="top_left", out=whole[:, 1:-1]) is not None
check("into a part", whole[:, 1:-1], wanted, 1e-5)
assert (whole[:, 0] == 7).all() and (whole[:, -1] == 7).all()

# Every other token, and one sequence for both.
check("every other token", tessera.attention(q[:, ::2], k, v), attend(q[:, ::2], k, v), 1e-5)
one = [np.broadcast_to(part[:1], part.shape) for part in (k, v)]
check("keys that are broadcast", tessera.attention(q, *one), attend(q, *one), 1e-5)

half = tessera.attention(*(part.astype("float16") for part in (q, k, v)), mask="top_left")
assert half.dtype == np.float16
check("in float16", half, wanted, 5e-3)
