"""The gradient of a bias, added up over what the bias is broadcast to, and what has none."""
import numpy as np
from definition import check, draw, gradients

import tessera

batch, heads, queries, keys = 2, 4, 24, 30
q, k, v = draw(0, batch, queries, keys, heads, heads, 32)
random = np.random.default_rng(1)
dout = random.standard_normal(q.shape, dtype=np.float32)
for shape in ((batch, heads, queries, keys), (heads, queries, keys), (1, 1, queries, keys),
              (batch, 1, 1, keys), (queries, 1)):
    bias = random.standard_normal(shape, dtype=np.float32)
    out, lse = tessera.attention(q, k, v, bias=bias, return_lse=True)
    *found, dbias = tessera.attention_backward(dout, q, k, v, out, lse, bias=bias,
                                               return_dbias=True)
    *wanted, of_scores = gradients(dout, q, k, v, bias=bias, return_scores=True)
    # The sum over the dimensions that the bias is broadcast to.
    full = (1,) * (4 - len(shape)) + shape
    axes = tuple(i for i in range(4) if full[i] == 1)
    check(f"dbias of {shape}", dbias, of_scores.sum(axes, keepdims=True).reshape(shape), 1e-4)
    for name, got, want in zip(("dq", "dk", "dv"), found, wanted):
        check(f"{name} beside it", got, want, 1e-4)

# A soft cap changes what reaches q and k, and not the bias.
bias = random.standard_normal((heads, queries, keys), dtype=np.float32)
out, lse = tessera.attention(q, k, v, bias=bias, soft_cap=2.0, return_lse=True)
*_, dbias = tessera.attention_backward(dout, q, k, v, out, lse, bias=bias, soft_cap=2.0,
                                       return_dbias=True)
*_, of_scores = gradients(dout, q, k, v, bias=bias, soft_cap=2.0, return_scores=True)
check("dbias below a soft cap", dbias, of_scores.sum(0), 1e-4)

# Slopes of ALiBi have no gradient, and a call without a bias has no dbias.
try:
    tessera.attention_backward(dout, q, k, v, out, lse, return_dbias=True)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("the gradient of no bias was computed")
