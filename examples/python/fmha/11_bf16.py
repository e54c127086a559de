"""bfloat16: verified by the library on its own operands, and on arrays of NumPy where the package
ml_dtypes brings the type."""
from definition import attend, check, draw

import tessera

here = tessera.Dispatcher()
for fields in ({}, {"out": "fp32"}, {"mask": "bottom_right"}, {"heads_kv": 2, "lse": 1}):
    problem = tessera.attention_problem(batch=2, heads=8, seqlen_q=33, seqlen_k=70, hdim=64,
                                        dtype="bf16", **fields)
    plan = here.plan(problem)
    result = plan.bench(rounds=1)  # on random operands; the result is verified first
    print(f"{problem}: {result['median_seconds'] * 1e6:.1f} us by {plan.kernel}")

try:
    import ml_dtypes
except ImportError:
    print("without the package ml_dtypes NumPy has no bfloat16")
else:
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in draw(0, 2, 33, 70, 8, 8, 64))
    # The output is rounded to 8 bits, and so are the weights where the kernel multiplies in bf16.
    check("arrays of bfloat16", tessera.attention(q, k, v), attend(q, k, v), 0.02)
