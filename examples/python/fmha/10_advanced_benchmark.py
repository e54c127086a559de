"""Times the candidates of a prompt and of a token, with the caches as they are and emptied, each
verified before it is timed.

An argument is the target: sm90a times them on a GPU.
"""
import sys

import tessera

here = tessera.Dispatcher(*sys.argv[1:])
on_gpu = here.target["backend"] != "cpu"
keys, dtype = (4096, "bf16") if on_gpu else (128, "fp32")
timed = 0
for queries, mask in ((keys, "top_left"), (1, None)):
    problem = tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=queries,
                                        seqlen_k=keys, hdim=64, dtype=dtype, mask=mask)
    print(problem)
    considered = here.select(problem)["considered"]
    for candidate in [row for row in considered if not row["refusal"]][:2]:
        plan = here.plan(problem, force=candidate["kernel"])
        warm, cold = (plan.bench(rounds=3, flush_caches=flush) for flush in (False, True))
        print(f"  {warm['median_seconds'] * 1e6:9.1f} us warm  "
              f"{cold['median_seconds'] * 1e6:9.1f} us cold  "
              f"{candidate['predicted_seconds'] * 1e6:9.1f} us predicted  {plan.kernel}")
        timed += warm["median_seconds"] > 0 and cold["median_seconds"] > 0
assert timed >= 2
