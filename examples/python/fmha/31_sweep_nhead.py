"""TFLOP/s by numbers of heads, and of heads that share keys and values. Each is verified first.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:], threads=1)
on_gpu = here.target["backend"] != "cpu"
here.set_timing(cold=1, repeat=3)
length = 1024 if on_gpu else 32

print(f"{'heads':>7} {'us':>10} {'TFLOP/s':>10}")
right = 0
for heads, heads_kv in ((1, 1), (2, 2), (4, 4), (8, 8), (8, 2), (16, 1), (32, 8)):
    problem = tessera.attention_problem(batch=1, heads=heads, heads_kv=heads_kv, hdim=64,
                                        seqlen_q=length, seqlen_k=length,
                                        dtype="bf16" if on_gpu else "fp32")
    result = here.plan(problem).bench()  # the result is verified first
    print(f"{heads:4}/{heads_kv:<2} {result['median_seconds'] * 1e6:10.1f} "
          f"{result['gflops'] * 1e-3:10.3g}")
    right += result["gflops"] > 0
print(f"{right} of 7")
assert right == 7
