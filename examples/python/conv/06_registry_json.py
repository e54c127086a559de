"""Kernels of a layer that trains: declared, built in parallel, exported as JSON, chosen among."""
import json

import numpy as np

import tessera

problems = [tessera.conv_problem(direction, n=2, c=8, k=16, groups=2, size=(12, 10), filter=3,
                                 padding=1)
            for direction in ("forward", "backward_data", "backward_weight")]
kernels = tessera.KernelSet("training")
for problem in problems:
    assert tessera.Problem.from_json(problem.to_json()) == problem
    kernels.for_problem(problem, best=1)
print(f"{len(kernels)} kernels:", *kernels.kernels, sep="\n  ")

text = tessera.Registry("training").declare(kernels).export_json()
print(len(text), "bytes of JSON with the keys", ", ".join(json.loads(text)))
registry = tessera.Registry("copy").import_json(text)
for row in registry.build():
    assert not row["error"], row["error"]

here = tessera.Dispatcher(pool=registry)
for problem in problems:
    assert here.select(problem)["kernel"] in kernels.kernels
x, w = np.ones((2, 12, 10, 8), "float32"), np.ones((16, 3, 3, 4), "float32")
y = tessera.conv(x, w, padding=1, groups=2, dispatcher=here)
print("the middle and a corner of the output:", y[0, 5, 5, 0], y[0, 0, 0, 0])
assert y[0, 5, 5, 0] == 9 * 4 and y[0, 0, 0, 0] == 4 * 4
