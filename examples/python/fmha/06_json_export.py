"""Kernels of attention: declared, built in parallel, exported as JSON, chosen among elsewhere."""
import json

from definition import attend, check, draw

import tessera

problems = [tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=queries, seqlen_k=41,
                                      hdim=64, mask=mask)
            for queries, mask in ((41, "top_left"), (1, None))]
kernels = tessera.KernelSet("prompts and tokens")
for problem in problems:
    assert tessera.Problem.from_json(problem.to_json()) == problem
    kernels.for_problem(problem, best=1)
print(f"{len(kernels)} kernels:", *kernels.kernels, sep="\n  ")

# By fields and wildcards: all kernels for packed sequences with a mask.
packed = tessera.KernelSet("packed").op("fmha").where(
    dtype="fp32", lengths="packed", mask="generic", bias="none", logits="false", tile="*")
print(f"{len(packed)} kernels for packed sequences with a mask")
assert len(packed) > 0 and all("_packed_masked" in name for name in packed.kernels)

text = tessera.Registry("attention").declare(kernels).export_json()
print(len(text), "bytes of JSON with the keys", ", ".join(json.loads(text)))
registry = tessera.Registry("copy").import_json(text)
for row in registry.build():
    assert not row["error"], row["error"]

here = tessera.Dispatcher(pool=registry)
for problem in problems:
    assert here.select(problem)["kernel"] in kernels.kernels
q, k, v = draw(0, 2, 1, 41, 4, 2, 64)
check("one token by a kernel of the copy", tessera.attention(q, k, v, dispatcher=here),
      attend(q, k, v), 1e-5)
