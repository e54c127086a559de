"""From a single new token to a long prompt: the kernel that is chosen for each shape, and its time.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:])
on_gpu = here.target["backend"] != "cpu"
factor, dtype = (16, "bf16") if on_gpu else (1, "fp32")

print(f"{'queries':>8} {'keys':>6} {'heads':>6} {'hdim':>5} {'us':>9} {'GFLOP/s':>9}  kernel")
timed = 0
for queries, keys, heads, heads_kv, hdim in ((1, 512, 8, 8, 64), (1, 512, 8, 1, 128),
                                             (16, 256, 8, 8, 64), (128, 128, 12, 12, 64),
                                             (128, 256, 4, 2, 128), (256, 256, 2, 2, 40)):
    longer = 1 if queries == 1 else factor
    problem = tessera.attention_problem(batch=2, heads=heads, heads_kv=heads_kv, hdim=hdim,
                                        seqlen_q=queries * longer, seqlen_k=keys * factor,
                                        dtype=dtype, mask="bottom_right")
    plan = here.plan(problem)
    result = plan.bench(rounds=3)  # the result is verified first
    print(f"{queries * longer:8} {keys * factor:6} {heads:3}/{heads_kv:<2} {hdim:5} "
          f"{result['median_seconds'] * 1e6:9.1f} {result['gflops']:9.1f}  {plan.kernel}")
    assert result["gflops"] > 0
    timed += 1
assert timed == 6
