"""TFLOP/s by the length of heads, equal and unequal. Each is verified first.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:], threads=1)
on_gpu = here.target["backend"] != "cpu"
here.set_timing(cold=1, repeat=3)
length = 1024 if on_gpu else 32
heads_of = ((32, 32), (64, 64), (80, 96), (96, 128), (128, 128), (192, 128), (256, 256))

print(f"{'head':>7} {'us':>10} {'TFLOP/s':>10}")
right = 0
for hdim, hdim_v in heads_of:
    builder = tessera.FmhaProblemBuilder().data_type("bf16" if on_gpu else "fp32")
    problem = builder.dims(hdim, hdim_v, 1, length, length).nheads(4, 4).build()
    result = here.plan(problem).bench()  # the result is verified first
    print(f"{hdim:3}/{hdim_v:<3} {result['median_seconds'] * 1e6:10.1f} "
          f"{result['gflops'] * 1e-3:10.3g}")
    right += result["gflops"] > 0
print(f"{right} of {len(heads_of)}")
assert right == 7
