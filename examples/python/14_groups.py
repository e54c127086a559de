"""Groups of unequal sizes: the tokens of each expert of a layer, in one call."""
import numpy as np

import tessera

random = np.random.default_rng(0)
tokens, experts, hidden, intermediate = 200, 6, 64, 48

# Which expert each token goes to; the second one gets none.
expert = np.sort(random.choice([0, 2, 3, 4, 5], tokens)).astype(np.int32)
ends = np.cumsum(np.bincount(expert, minlength=experts)).astype(np.int32)
x = random.standard_normal((tokens, hidden), dtype=np.float32)
weights = random.standard_normal((experts, hidden, intermediate), dtype=np.float32)
wanted = np.einsum("tk,tkn->tn", x, weights[expert])

by_ends = tessera.grouped_matmul(x, weights, ends=ends)
by_index = tessera.grouped_matmul(x, weights, index=expert)
for what, got in (("ends", by_ends), ("index", by_index)):
    error = abs(got - wanted).max()
    print(f"{experts} experts by {what:6} {ends.tolist()}: error {error:.1e}")
    assert error < 1e-3

# The gradient of the weights: both operands are cut along the tokens.
slopes = random.standard_normal((tokens, intermediate), dtype=np.float32)
gradient = tessera.grouped_matmul(np.ascontiguousarray(x.T), slopes, ends=ends)
wanted = np.stack([x[expert == e].T @ slopes[expert == e] for e in range(experts)])
print(f"gradient {gradient.shape}: error {abs(gradient - wanted).max():.1e}")
assert abs(gradient - wanted).max() < 1e-3

# Numbers that do not fit are refused before anything is written.
try:
    tessera.grouped_matmul(x, weights, ends=ends[::-1].copy())
    raise SystemExit("nothing was refused")
except tessera.Error as error:
    print(error)
