"""The definition of attention in NumPy and float64, which the examples compare with."""
import numpy as np


def attend(q, k, v, *, seen=None, bias=0.0, scale=None, soft_cap=0.0):
    """q: (batch, queries, heads, hdim). seen: (queries, keys), truth values. bias: added to the
    scores (batch, heads, queries, keys)."""
    q, k, v = (np.asarray(x, "float64").swapaxes(1, 2) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (q.shape[-1]**-0.5 if scale is None else scale)
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    scores = scores + bias
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(1, 2)


def draw(seed, batch, queries, keys, heads, heads_kv, hdim, hdim_v=None):
    """q, k and v of random numbers, float32."""
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, dtype=np.float32) for shape in (
        (batch, queries, heads, hdim), (batch, keys, heads_kv, hdim),
        (batch, keys, heads_kv, hdim_v or hdim))]


def check(what, got, wanted, bound):
    """Prints the largest error; above the bound it ends the program."""
    error = float(abs(np.asarray(got, "float64") - wanted).max())
    print(f"{what}: largest error {error:.1e}")
    if not error <= bound:
        raise SystemExit(f"{what}: {error:.1e} is more than {bound:.1e}")
