"""Where heads and tokens lie in memory: every order, without a copy, and results in the query's."""
import numpy as np
from definition import attend, check, draw

import tessera

q, k, v = draw(0, 2, 9, 14, 4, 2, 32)
wanted = attend(q, k, v)
check("tokens before heads", tessera.attention(q, k, v), wanted, 1e-5)
swapped = [x.swapaxes(1, 2) for x in (q, k, v)]
out = tessera.attention(*(np.ascontiguousarray(x) for x in swapped), layout="bhsd")
assert out.shape == (2, 4, 9, 32) and out.flags.c_contiguous
check("heads before tokens", out.swapaxes(1, 2), wanted, 1e-5)
out = tessera.attention(*swapped, layout="bhsd")  # views of tokens before heads
assert out.swapaxes(1, 2).flags.c_contiguous
check("a view with heads first, tokens first in memory", out.swapaxes(1, 2), wanted, 1e-5)

# One projection's output holds q, k and v side by side; values may lie by columns.
both = np.concatenate([k.reshape(2, 14, -1), v.reshape(2, 14, -1)], -1)
k_part, v_part = (part.reshape(2, 14, 2, 32) for part in np.split(both, 2, -1))
assert k_part.base is not None
check("keys and values side by side", tessera.attention(q, k_part, v_part), wanted, 1e-5)
columns = np.ascontiguousarray(v.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
assert columns.strides[1] == 4
check("values by columns", tessera.attention(q, k, columns), wanted, 1e-5)
out = np.empty((4, 32, 9, 2), "float32").transpose(3, 2, 0, 1)
tessera.attention(q, k, v, out=out)
check("a result whose batch is innermost", out, wanted, 1e-5)
