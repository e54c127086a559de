"""A layer of experts: a router chooses, one product gathers rows and one scatters them."""
import numpy as np

import tessera

random = np.random.default_rng(0)
tokens, experts, top_k, hidden, inner = 60, 16, 4, 64, 48
draw = lambda *shape: random.standard_normal(shape, dtype=np.float32) / shape[-1]**0.5
x, logits = draw(tokens, hidden), random.standard_normal((tokens, experts), dtype=np.float32)
w1, w2 = draw(experts, 2 * inner, hidden), draw(experts, hidden, inner)

# Experts are chosen by their scores with a bias, from the two best of four groups.
bias = 0.1 * random.standard_normal(experts, dtype=np.float32)
ids, weights, order = tessera.route(logits, top_k, scoring="sigmoid", bias=bias, num_groups=4,
                                    top_groups=2, order=True)
print(f"token 0 goes to {ids[0].tolist()}, weights {weights[0]}")
assert abs(weights.sum(1) - 1).max() < 1e-5
assert order.group_ends[-1] == tokens * top_k

# Rows of one expert after the other: x by tokens, results by slots.
rows = tokens * top_k
made = np.empty((rows, inner), np.float32)
tessera.run(f"gemm m={rows} n={2 * inner} k={hidden} layout=rcr groups={experts} "
            f"grouping=contiguous indexing=gathered index_room={tokens} gate=silu_mul",
            a=x, b=w1, out=made, group_ends=order.group_ends, row_index=order.row_index)
each = np.empty((rows, hidden), np.float32)
tessera.run(f"gemm m={rows} n={hidden} k={inner} layout=rcr groups={experts} "
            f"grouping=contiguous indexing=scattered index_room={rows} epilogue=row_scale",
            a=made, b=w2, out=each, d0=weights.reshape(-1), group_ends=order.group_ends,
            row_index=order.slots)
got = each.reshape(tokens, top_k, hidden).sum(1)

wanted = np.zeros_like(x)
for token in range(tokens):
    for expert, weight in zip(ids[token], weights[token]):
        gate, up = np.split(w1[expert] @ x[token], 2)
        wanted[token] += weight * (w2[expert] @ (gate / (1 + np.exp(-gate)) * up))
print(f"largest difference {abs(got - wanted).max():.1e}")
assert abs(got - wanted).max() < 1e-5
