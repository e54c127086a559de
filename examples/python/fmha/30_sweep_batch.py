"""TFLOP/s from one sequence to many. Each batch is verified first.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:], threads=1)
on_gpu = here.target["backend"] != "cpu"
here.set_timing(cold=1, repeat=3)
length = 1024 if on_gpu else 32

print(f"{'batch':>7} {'us':>10} {'TFLOP/s':>10}")
right = 0
for batch in (1, 2, 4, 8, 16, 32):
    problem = tessera.attention_problem(batch=batch, heads=2, hdim=64, seqlen_q=length,
                                        seqlen_k=length, mask="top_left",
                                        dtype="bf16" if on_gpu else "fp32")
    result = here.plan(problem).bench()  # the result is verified first
    print(f"{batch:7} {result['median_seconds'] * 1e6:10.1f} {result['gflops'] * 1e-3:10.3g}")
    right += result["gflops"] > 0
print(f"{right} of 6")
assert right == 6
