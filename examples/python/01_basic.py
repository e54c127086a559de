"""Multiplies two matrices, then with bias and GELU in the same pass, and catches an error."""
import numpy as np

import tessera

random = np.random.default_rng(0)
a = random.standard_normal((128, 768), dtype=np.float32)
w = random.standard_normal((3072, 768), dtype=np.float32)  # a layer's weight: outputs by inputs
bias = random.standard_normal(3072, dtype=np.float32)

c = tessera.matmul(a, w.T)  # the transposed view costs nothing
error = abs(c - a @ w.T).max()
print(f"a @ w.T: {c.shape}, {error:.1e} from NumPy's")
assert error < 1e-2

layer = tessera.matmul(a, w.T, bias=bias, activation="gelu")
print(f"gelu(a @ w.T + bias): {layer[0, :3]}")
assert layer.min() > -0.18  # gelu's least value is -0.17

print("kernel:", tessera.select("gemm m=128 n=3072 k=768 epilogue=bias+gelu")["kernel"])
try:
    tessera.matmul(a, w)
except tessera.Error as error:
    print(f"{error.code}: {error}")
else:
    raise SystemExit("matrices that do not fit were multiplied")
