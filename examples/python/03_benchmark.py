"""Times one problem: a plan's own benchmark, beside NumPy and a call of matmul."""
import time

import numpy as np

import tessera

SIZE = 384


def seconds(function, rounds=7):
    function()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return sorted(times)[rounds // 2]


random = np.random.default_rng(0)
a, b = (random.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
out = np.empty_like(a)
plan = tessera.Dispatcher().plan("gemm", m=SIZE, n=SIZE, k=SIZE, layout="rrr")
print("kernel:", plan.kernel)

result = plan.bench(rounds=7, min_seconds=0.005, a=a, b=b, out=out)
rows = {"Plan.bench": result["median_seconds"],
        "tessera.matmul": seconds(lambda: tessera.matmul(a, b, out=out)),
        "numpy.matmul": seconds(lambda: np.matmul(a, b, out=out))}
for name, median in rows.items():
    print(f"{name:16} {median * 1e6:9.1f} us  {2 * SIZE**3 / median / 1e9:8.1f} GFLOP/s")
print(f"spread of Plan.bench: {result['spread']:.1%}")
assert len(result["seconds"]) == 7 and result["median_seconds"] > 0
