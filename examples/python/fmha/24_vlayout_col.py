"""Values by columns: each element of all tokens together, as a transposed product leaves them. Only
the strides differ, nothing is copied."""
import numpy as np
from definition import attend, check, draw

import tessera

q, k, v = draw(0, 2, 9, 70, 4, 2, 32, 48)
wanted = attend(q, k, v)
columns = np.ascontiguousarray(v.transpose(0, 2, 3, 1))  # (batch, heads, hdim_v, tokens)
by_columns = columns.transpose(0, 3, 1, 2)
assert by_columns.strides[1] == 4 and by_columns.base is not None
check("values by columns", tessera.attention(q, k, by_columns), wanted, 1e-5)
check("keys by columns, too",
      tessera.attention(q, np.ascontiguousarray(k.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
                        by_columns), wanted, 1e-5)

# The same problem by its strides, and what would run on a GPU.
problem = tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=9, seqlen_k=70, hdim=32,
                                    hdim_v=48, v_stride_s=1, v_stride_d=70, v_stride_h=48 * 70,
                                    v_stride_b=2 * 48 * 70)
out = np.empty((2, 9, 4, 48), "float32")
tessera.run(problem, q=q.swapaxes(1, 2), k=k.swapaxes(1, 2), v=by_columns.swapaxes(1, 2),
            out=out.swapaxes(1, 2))
check("the problem by its strides", out, wanted, 1e-5)
print(tessera.select(problem, target="sm90a")["kernel"])
