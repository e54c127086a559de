"""Views, gaps, results in place: which arrays are taken as they are. Types, and packed weights."""
import numpy as np

import tessera

random = np.random.default_rng(0)
big = random.standard_normal((64, 100), dtype=np.float32)
a, b = big[:, 10:74], random.standard_normal((32, 64), dtype=np.float32)

results = np.zeros((64, 40), np.float32)
tessera.matmul(a, b.T, out=results[:, 4:36])  # rows with gaps on both sides
print("into a part of an array:", abs(results[:, 4:36] - a @ b.T).max(), "off")
assert abs(results[:, 4:36] - a @ b.T).max() < 1e-4 and not results[:, :4].any()

residual = results[:, 4:36].copy()
tessera.matmul(a, b.T, residual=residual, out=residual)
assert abs(residual - 2 * (a @ b.T)).max() < 1e-3
print("added in place: the residual may be the result")

for dtype in ("float16", "float32"):
    c = tessera.matmul(a.astype(dtype), b.T.astype(dtype))
    print(f"{dtype} x {dtype} -> {c.dtype}")
x = np.arange(12, dtype=np.int8).reshape(3, 4)
print("int8 x int8 ->", tessera.matmul(x, x.T).dtype, tessera.matmul(x, x.T)[0])
assert (tessera.matmul(x, x.T) == x.astype(int) @ x.T.astype(int)).all()

weight = tessera.prepack(b.T, rows=64)  # packed once, for many calls
assert abs(tessera.matmul(a, weight) - a @ b.T).max() < 1e-4
print("packed:", weight)

p = tessera.softmax(a)
print("softmax:", p.shape, "rows sum to", p.sum(-1).min(), "to", p.sum(-1).max())
assert abs(p.sum(-1) - 1).max() < 1e-5
for wrong in (a.astype(np.float64), a[::-1], np.broadcast_to(a[0], (64, 64))):
    try:
        tessera.matmul(wrong, b.T)
    except tessera.Error as error:
        print("refused:", str(error)[:90])
    else:
        raise SystemExit("an array that no problem can say was taken")
