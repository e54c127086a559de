"""Several registries: built in parallel with progress, merged, filtered, and as a pool to choose
from."""
import numpy as np

import tessera


def progress(label, done, total, kernel):
    print(f"  {label} {done}/{total}: {kernel}")


small = tessera.KernelSet("small").for_problem("gemm m=32 n=32 k=32 layout=rrr", best=2)
large = tessera.KernelSet("large").for_problem("gemm m=512 n=512 k=512 layout=rrr", best=2)
norms = tessera.KernelSet("norms").for_problem("norm kind=softmax rows=32 columns=32")

products = tessera.Registry("products").declare(small).declare(large)
for row in products.build(max_workers=2, progress=progress):
    assert not row["error"], row
others = tessera.Registry("others").declare(norms)

together = tessera.Registry("together").merge(products).merge(others)
print(f"{len(products)} + {len(others)} kernels, {len(together)} together, "
      f"{sum(row['is_loaded'] for row in together.list())} of them loaded")
assert len(together) == len(products) + len(others)
assert len(together.filter("gemm_*")) == len(products)

# A dispatcher with a pool chooses among its kernels alone.
pool = tessera.Registry("only_small").declare(small)
dispatcher = tessera.Dispatcher(pool=pool)
chosen = dispatcher.select("gemm m=128 n=128 k=128 layout=rrr")["kernel"]
print("from the small pool, for a larger problem:", chosen)
assert chosen in small.kernels
a = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
assert abs(tessera.matmul(a, a, dispatcher=dispatcher) - a @ a).max() < 1e-3
