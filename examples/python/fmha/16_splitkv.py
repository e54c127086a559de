"""One query over many keys: parts of the keys computed by themselves and merged, by hand and in the
kernel, which cuts them where there are few queries."""
import numpy as np
from definition import attend, check, draw

import tessera

q, k, v = draw(0, 2, 1, 5000, 8, 2, 64)
wanted = attend(q, k, v)
whole, lse = tessera.attention(q, k, v, return_lse=True)
check("5000 keys at once", whole, wanted, 1e-5)

# Each part gives its result and the logarithm of its sum of exponentials, (batch, heads, queries).
parts = [tessera.attention(q, k[:, begin:begin + 1250], v[:, begin:begin + 1250], return_lse=True)
         for begin in range(0, 5000, 1250)]
sums = np.stack([of_part for _, of_part in parts])
total = np.logaddexp.reduce(sums)
weights = np.exp(sums - total).swapaxes(2, 3)[..., None]
merged = sum(weight * out for weight, (out, _) in zip(weights, parts))
check("4 parts merged by hand", merged, wanted, 1e-5)
check("their log-sum-exp", total, lse, 1e-5)

# Parts follow from the problem and not from the threads, so that the bits are the same.
for threads in (1, 3):
    again = tessera.attention(q, k, v, dispatcher=tessera.Dispatcher(threads=threads))
    assert (again == whole).all()

# A caller may ask for a number of parts.
problem = tessera.attention_problem(batch=2, heads=8, heads_kv=2, seqlen_q=1, seqlen_k=5000,
                                    hdim=64, num_splits=16)
out = np.empty_like(q)
tessera.run(problem, q=q.swapaxes(1, 2), k=k.swapaxes(1, 2), v=v.swapaxes(1, 2),
            out=out.swapaxes(1, 2))
check("16 parts, as asked for", out, wanted, 1e-5)
print(tessera.explain(problem))
print(tessera.explain("fmha batch=2 heads=8 heads_kv=2 seqlen_q=1 seqlen_k=5000 hdim=64"))
