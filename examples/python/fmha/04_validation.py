"""Every kernel that is considered for a problem, verified against the library's fp64 reference, and
the log-sum-exp against NumPy."""
import numpy as np
from definition import attend, check, draw

import tessera

here = tessera.Dispatcher()
verified = 0
for dtype, mask, lse in (("fp32", None, 0), ("fp16", "bottom_right", 1)):
    problem = tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=30, seqlen_k=70,
                                        hdim=64, dtype=dtype, mask=mask, lse=lse)
    for row in here.select(problem)["considered"]:
        if row["refusal"]:
            continue
        here.plan(problem, force=row["kernel"]).bench(rounds=1)  # raises where a result is wrong
        print("verified", row["kernel"])
        verified += 1
assert verified >= 2

q, k, v = draw(0, 2, 30, 70, 4, 4, 64)
out, lse = tessera.attention(q, k, v, return_lse=True)
check("the output", out, attend(q, k, v), 1e-5)
scores = np.einsum("bqhd,bkhd->bhqk", q.astype("float64"), k) / 8
check("the log-sum-exp", lse, np.log(np.exp(scores).sum(-1)), 1e-5)
