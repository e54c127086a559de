"""The best candidates of several problems, timed warm and with cold caches, as a table."""
import tessera

PROBLEMS = ["gemm m=1 n=1024 k=1024", "gemm m=64 n=256 k=512", "gemm m=256 n=256 k=256",
            "gemm m=256 n=256 k=256 dtype=bf16", "norm kind=softmax rows=128 columns=1024"]
dispatcher = tessera.Dispatcher(threads=1)


def times(problem, kernel):
    plan = dispatcher.plan(problem, force=kernel)
    warm = plan.bench(rounds=5, min_seconds=0.002, seed=1)
    cold = plan.bench(rounds=5, flush_caches=True, seed=1)
    return warm["median_seconds"], cold["median_seconds"], warm


print(f"{'warm us':>9} {'cold us':>9} {'GFLOP/s':>9} {'GB/s':>7}  kernel")
for line in PROBLEMS:
    problem = tessera.Problem(line)
    considered = dispatcher.select(problem)["considered"]
    kernels = [row["kernel"] for row in considered if not row["refusal"]][:2]
    print(problem)
    for kernel in kernels:
        warm, cold, result = times(problem, kernel)
        print(f"{warm * 1e6:9.1f} {cold * 1e6:9.1f} {result['gflops']:9.1f} "
              f"{result['gb_per_second']:7.1f}  {kernel}")
        assert warm > 0 and cold > 0
