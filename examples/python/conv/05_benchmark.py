"""Times a layer's three directions: candidates by name, each verified before it is timed.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:])
on_gpu = here.target["backend"] != "cpu"
sizes = dict(n=32, c=128, k=128, dtype="bf16") if on_gpu else dict(n=1, c=32, k=32)
timed = 0
for direction in ("forward", "backward_data", "backward_weight"):
    problem = tessera.conv_problem(direction, size=(28, 28), filter=3, padding=1, **sizes)
    print(problem)
    considered = here.select(problem)["considered"]
    for candidate in [row for row in considered if not row["refusal"]][:3]:
        plan = here.plan(problem, force=candidate["kernel"])
        result = plan.bench(rounds=5)
        print(f"  {result['median_seconds'] * 1e6:9.1f} us  {result['gflops']:9.1f} GFLOP/s  "
              f"{candidate['predicted_seconds'] * 1e6:9.1f} us predicted  {plan.kernel}")
        timed += 1
assert timed >= 3
