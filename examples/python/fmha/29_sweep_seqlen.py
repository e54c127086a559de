"""TFLOP/s from short sequences to long ones. Each length is verified first.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:], threads=1)
on_gpu = here.target["backend"] != "cpu"
here.set_timing(cold=1, repeat=3)
lengths = [(128 if on_gpu else 8) << i for i in range(7)]

print(f"{'length':>7} {'us':>10} {'TFLOP/s':>10}  kernel")
right = 0
for length in lengths:
    problem = tessera.attention_problem(batch=1, heads=8 if on_gpu else 1, hdim=64,
                                        seqlen_q=length, seqlen_k=length,
                                        dtype="bf16" if on_gpu else "fp32")
    plan = here.plan(problem)
    result = plan.bench()  # the result is verified first
    print(f"{length:7} {result['median_seconds'] * 1e6:10.1f} "
          f"{result['gflops'] * 1e-3:10.3g}  {plan.kernel}")
    right += result["gflops"] > 0
print(f"{right} of {len(lengths)}")
assert right == 7
