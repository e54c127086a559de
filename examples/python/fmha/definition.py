"""The definition of attention in NumPy and float64, which the examples compare with."""
import numpy as np


def _weights(q, k, seen, bias, scale, soft_cap):
    """The weights of keys, and by how much a soft cap flattens the scores; heads first."""
    scores, slope = q @ k.swapaxes(2, 3) * scale, 1.0
    if soft_cap:
        part = np.tanh(scores / soft_cap)
        scores, slope = soft_cap * part, 1 - part**2
    scores = scores + bias
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True), slope


def attend(q, k, v, *, seen=None, bias=0.0, scale=None, soft_cap=0.0):
    """q: (batch, queries, heads, hdim). seen: (queries, keys), truth values. bias: added to the
    scores (batch, heads, queries, keys)."""
    q, k, v = (np.asarray(x, "float64").swapaxes(1, 2) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scale = q.shape[-1]**-0.5 if scale is None else scale
    return (_weights(q, k, seen, bias, scale, soft_cap)[0] @ v).swapaxes(1, 2)


def gradients(dout, q, k, v, *, seen=None, bias=0.0, scale=None, soft_cap=0.0, factors=1.0,
              return_scores=False):
    """dq, dk and dv of a loss whose gradient by attention's result is dout. factors: what dropout
    multiplies each weight with. return_scores: also the gradient by the scores with their bias,
    (batch, heads, queries, keys)."""
    dout, q, k, v = (np.asarray(x, "float64").swapaxes(1, 2) for x in (dout, q, k, v))
    heads_kv, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = (x.repeat(group, axis=1) for x in (k, v))
    scale = q.shape[-1]**-0.5 if scale is None else scale
    weights, slope = _weights(q, k, seen, bias, scale, soft_cap)
    of_weights = dout @ v.swapaxes(2, 3) * factors
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True))
    of_products = of_scores * slope * scale
    dk, dv = of_products.swapaxes(2, 3) @ q, (weights * factors).swapaxes(2, 3) @ dout
    shared = [x.reshape(x.shape[0], heads_kv, group, *x.shape[2:]).sum(2) for x in (dk, dv)]
    found = [x.swapaxes(1, 2) for x in (of_products @ k, *shared)]
    return (*found, of_scores) if return_scores else tuple(found)


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
