"""Compares kernels with the fp64 reference: on random operands, the caller's own, and NaN."""
import numpy as np

import tessera

LINE = "gemm m=100 n=70 k=130 layout=rrr epilogue=bias+relu"
dispatcher = tessera.Dispatcher()
decision = dispatcher.select(LINE)
legal = [row["kernel"] for row in decision["considered"] if not row["refusal"]]
for kernel in legal[:3]:
    dispatcher.plan(LINE, force=kernel).verify(seed=3)
    print("right:", kernel)

# On the caller's own operands: an Error where an element is outside its tolerance.
random = np.random.default_rng(0)
a, b, bias = (random.standard_normal(s, dtype=np.float32) for s in ((100, 130), (130, 70), (70,)))
out = tessera.gemm(LINE, a=a, b=b, d0=bias, verify=True)
wanted = np.maximum(a @ b + bias, 0)
print(f"own operands: verified, {abs(out - wanted).max():.1e} from NumPy")
assert abs(out - wanted).max() < 1e-3

a[3, 5] = np.nan
out = tessera.gemm(LINE, a=a, b=b, d0=bias, verify=True)
print("a NaN in row 3 reaches the rows", sorted(set(np.argwhere(np.isnan(out))[:, 0].tolist())))
assert np.isnan(out[3]).all() and not np.isnan(np.delete(out, 3, 0)).any()
