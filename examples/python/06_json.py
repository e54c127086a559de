"""Problems, kernel sets and registries as JSON, to files and back."""
import json
import pathlib
import tempfile

import tessera

problem = tessera.Problem("gemm m=64 n=64 k=64 dtype=bf16 epilogue=bias+relu")
again = tessera.Problem.from_json(problem.to_json())
print("problem:", again.line)
assert again == problem

kernels = tessera.KernelSet("both", target="avx512").for_problem(problem, best=2)
kernels.for_problem("norm kind=softmax rows=64 columns=64")
print("kernel set:", kernels.to_json()[:70].replace("\n", " "), "...")
assert tessera.KernelSet.from_json(kernels.to_json()).kernels == kernels.kernels

# What a person writes by hand: a target, and wildcards.
by_hand = tessera.KernelSet.from_json({"name": "by_hand", "target": "avx2",
                                       "preselected": ["fp32_rcr_essential"]})
print(f"by hand: {len(by_hand)} kernels, the first is {by_hand.kernels[0]}")
assert len(by_hand) > 0

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "registry.json"
    file.write_text(tessera.Registry("all").declare(kernels).declare(by_hand).export_json())
    print("registry:", file.stat().st_size, "bytes of JSON with the keys",
          ", ".join(json.loads(file.read_text())))
    registry = tessera.Registry("copy").import_json(file.read_text())
names = [row["kernel"] for row in registry.list()]
assert set(names) == set(kernels.kernels) | set(by_hand.kernels)
print(f"imported: {len(names)} kernels")
