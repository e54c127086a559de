"""Gradients of attention by NumPy's arrays against their definition in fp64."""
import unittest
import unittest.mock

import ml_dtypes
import numpy

import tessera
from tessera import _arrays
from support import SEED, Case, wide
from test_attention import heads_first, random_bytes, seen_keys

# Of the largest element of a gradient: the weights and the result are rounded to a narrow type.
LIMITS = {"float32": 2e-5, "float16": 4e-3, ml_dtypes.bfloat16: 3e-2}


def gradients(dout, q, k, v, mask=None, window=None, sink=0, bias=None, scale=None, soft_cap=0.0,
              factors=1.0):
    """dq, dk, dv and ds of one sequence: (heads, tokens, hdim) in fp64."""
    dout, q, k, v = (wide(x) for x in (dout, q, k, v))
    heads_kv, group = k.shape[0], q.shape[0] // k.shape[0]
    all_k, all_v = (numpy.repeat(x, group, 0) for x in (k, v))
    scale = q.shape[-1]**-0.5 if scale is None else scale
    capped = q @ all_k.swapaxes(1, 2) * scale
    slope = 1.0
    if soft_cap:
        share = numpy.tanh(capped / soft_cap)
        capped, slope = soft_cap * share, 1 - share**2
    scores = capped + (0 if bias is None else wide(bias))
    seen = seen_keys(q.shape[1], k.shape[1], mask, window, sink)
    scores = numpy.where(seen, scores, -numpy.inf)
    most = numpy.maximum(scores.max(-1, keepdims=True, initial=-1e30), -1e30)
    weights = numpy.exp(scores - most)
    weights /= numpy.maximum(weights.sum(-1, keepdims=True), 1e-300)
    kept = weights * factors
    dweight = dout @ all_v.swapaxes(1, 2) * factors
    ds = weights * (dweight - (dout * (kept @ all_v)).sum(-1, keepdims=True))
    dx = ds * slope * scale
    dk, dv = dx.swapaxes(1, 2) @ q, kept.swapaxes(1, 2) @ dout
    shared = [x.reshape(heads_kv, group, *x.shape[1:]).sum(1) for x in (dk, dv)]
    return [dx @ all_k, *shared, ds]


class AttentionBackward(Case):
    def setUp(self):
        self.random = numpy.random.default_rng(SEED)

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def arrays(self, batch=2, heads=4, heads_kv=2, queries=20, keys=30, hdim=16, hdim_v=24,
               dtype="float32", layout="bshd"):
        shapes = [(batch, queries, heads, hdim), (batch, keys, heads_kv, hdim),
                  (batch, keys, heads_kv, hdim_v), (batch, queries, heads, hdim_v)]
        return [self.draw(*(s if layout == "bshd" else (s[0], s[2], s[1], s[3])), dtype=dtype)
                for s in shapes]

    def assert_near(self, got, want, dtype, what):
        most = max(numpy.abs(want).max(initial=0), 1.0)
        error = numpy.abs(wide(got) - want).max(initial=0)
        self.assertLessEqual(error, LIMITS[dtype] * most, f"{what}, seed {SEED}")

    def check(self, dtype="float32", layout="bshd", bias=None, factors=1.0, how=None, **sizes):
        how = how or {}
        q, k, v, dout = self.arrays(dtype=dtype, layout=layout, **sizes)
        both = {**how, "layout": layout}
        out, lse = tessera.attention(q, k, v, bias=bias, return_lse=True, **both)
        found = tessera.attention_backward(dout, q, k, v, out, lse, bias=bias,
                                           return_dbias=bias is not None, **both)
        own = {name: value for name, value in how.items() if name not in ("dropout", "seed")}
        total = 0 if bias is None else numpy.zeros((q.shape[0], *gradients(
            *(heads_first(x[0], layout) for x in (dout, q, k, v)))[3].shape))
        for b in range(q.shape[0]):
            of_bias = None if bias is None else numpy.broadcast_to(
                wide(bias), (q.shape[0], *total.shape[1:]))[b]
            factor = factors(b) if callable(factors) else factors
            *want, ds = gradients(*(heads_first(x[b], layout) for x in (dout, q, k, v)),
                                  bias=of_bias, factors=factor, **own)
            for name, got, right in zip(("dq", "dk", "dv"), found, want):
                self.assert_near(heads_first(got[b], layout), right, dtype, f"{name} {how}")
            if bias is not None:
                total[b] = ds
        if bias is not None:
            lead = tuple(i for i in range(4) if i < 4 - bias.ndim or
                         bias.shape[i - 4 + bias.ndim] != total.shape[i])
            self.assertEqual(found[3].shape, bias.shape)
            self.assert_near(found[3], total.sum(lead).reshape(bias.shape), dtype, "dbias")

    def test_features(self):
        for dtype in LIMITS:
            for how in ({}, {"mask": "top_left"}, {"scale": 0.3}, {"soft_cap": 1.5},
                        {"mask": "bottom_right", "window": (7, 2), "sink": 1}):
                for layout in ("bshd", "bhsd"):
                    self.check(dtype, layout, how=how)
        for shape in ((2, 4, 20, 30), (4, 20, 30), (1, 1, 20, 30), (2, 1, 1, 30), (30,)):
            self.check(bias=self.draw(*shape), how={"mask": "bottom_right"})

    def test_random_sizes(self):
        for _ in range(8):
            pick = lambda *ends: int(self.random.integers(*ends))  # noqa: E731
            heads_kv = pick(1, 4)
            self.check(heads_kv=heads_kv, heads=heads_kv * pick(1, 4), queries=pick(1, 90),
                       keys=pick(1, 260), hdim=pick(1, 70), hdim_v=pick(1, 70))

    def test_dropout(self):
        kept = round(256 * 0.75)
        bytes_of = random_bytes(5, 0, 8, 20, 30)
        self.check(how={"dropout": 0.25, "seed": 5}, factors=lambda b: numpy.where(
            bytes_of[4 * b:4 * b + 4] < kept, 256 / kept, 0))

    def test_packed(self):
        sums = [0, 7, 7, 20], [0, 12, 20, 30]
        q, k, v, dout = (x[0] for x in self.arrays(1))
        how = {"seqlens_q": sums[0], "seqlens_k": sums[1], "mask": "top_left"}
        out, lse = tessera.attention(q, k, v, return_lse=True, **how)
        dq, dk, dv = tessera.attention_backward(dout, q, k, v, out, lse, **how)
        for i in range(3):
            of_q, of_k = (slice(s[i], s[i + 1]) for s in sums)
            one = [x.swapaxes(0, 1) for x in (dout[of_q], q[of_q], k[of_k], v[of_k])]
            if of_q.start == of_q.stop:
                self.assertTrue((dk[of_k] == 0).all() and (dv[of_k] == 0).all())
                continue
            for got, want in zip((dq[of_q], dk[of_k], dv[of_k]), gradients(*one, mask="top_left")):
                self.assert_near(got.swapaxes(0, 1), want, "float32", f"sequence {i}")

    def test_padded(self):
        q, k, v, dout = self.arrays()
        how = {"seqlens_q": [20, 3], "seqlens_k": [11, 30]}
        out, lse = tessera.attention(q, k, v, return_lse=True, **how)
        dq, dk, _ = tessera.attention_backward(dout, q, k, v, out, lse, **how)
        self.assertTrue((dq[1, 3:] == 0).all() and (dk[0, 11:] == 0).all())

    def test_slopes(self):
        """Their gradient is that of a bias, added up with minus the distances."""
        q, k, v, dout = self.arrays()
        far = -abs(numpy.arange(20)[:, None] + 10 - numpy.arange(30)).astype("float32")
        for shape in ((4,), (2, 4), (1, 4)):
            sequences = 1 if shape[0] == 1 else 2
            q, k, v, dout = (x[:sequences] for x in self.arrays())
            slopes = numpy.abs(self.draw(*shape)) / 8
            bias = numpy.broadcast_to(slopes, (sequences, 4))[..., None, None] * far
            how = {"mask": "bottom_right"}
            out, lse = tessera.attention(q, k, v, slopes=slopes, return_lse=True, **how)
            *same, dbias = tessera.attention_backward(dout, q, k, v, out, lse, bias=bias,
                                                      return_dbias=True, **how)
            *found, dslopes = tessera.attention_backward(dout, q, k, v, out, lse, slopes=slopes,
                                                         return_dslopes=True, **how)
            for got, want in zip(found, same):
                self.assert_near(got, want, "float32", "beside a bias")
            wanted = (dbias.astype("float64") * far).sum((2, 3))
            wanted = wanted.sum(0) if len(shape) == 1 else wanted
            self.assertEqual(dslopes.shape, shape)
            self.assert_near(dslopes, wanted, "float32", "dslopes")

    def test_dlse(self):
        """A score's gradient has the weight times that of lse in addition."""
        q, k, v, dout = self.arrays(heads_kv=4)
        out, lse = tessera.attention(q, k, v, return_lse=True)
        dlse = self.draw(*lse.shape)
        dq, dk, dv = tessera.attention_backward(dout, q, k, v, out, lse)
        found = tessera.attention_backward(dout, q, k, v, out, lse, dlse=dlse)
        wide_q, wide_k = (wide(x).swapaxes(1, 2) for x in (q, k))
        scale = q.shape[-1]**-0.5
        weights = numpy.exp(wide_q @ wide_k.swapaxes(2, 3) * scale - lse[..., None])
        added = weights * dlse[..., None] * scale
        self.assert_near(found[0], dq + (added @ wide_k).swapaxes(1, 2), "float32", "dq")
        self.assert_near(found[1], dk + (added.swapaxes(2, 3) @ wide_q).swapaxes(1, 2), "float32",
                         "dk")
        self.assert_near(found[2], dv, "float32", "dv")

    def test_no_scores(self):
        """A bias that all sequences, queries or keys share gets the sum of nothing."""
        unwritten = unittest.mock.patch.object(
            _arrays, "empty", lambda shape, *_: numpy.full(shape, numpy.nan, "float32"))
        for sizes, of_bias in (({"batch": 0}, (1, 1, 20, 30)), ({"queries": 0}, (1, 4, 1, 30)),
                               ({"keys": 0}, (2, 1, 20, 1))):
            q, k, v, dout = self.arrays(**sizes)
            out, lse = tessera.attention(q, k, v, return_lse=True)
            bias = self.draw(*of_bias)
            with unwritten:
                found = tessera.attention_backward(dout, q, k, v, out, lse, bias=bias,
                                                   return_dbias=True)
            self.assertEqual([x.shape for x in found], [x.shape for x in (q, k, v, bias)])
            for gradient in found:
                self.assertTrue((gradient == 0).all(), f"{sizes}: {gradient}")

    def test_refusals(self):
        q, k, v, dout = self.arrays()
        out, lse = tessera.attention(q, k, v, return_lse=True)

        def refused(sentence, *arrays, **how):
            self.assert_refused(sentence, tessera.attention_backward, *arrays, **how)

        refused("^attention_backward: dout must have the shape", dout[:, :3], q, k, v, out, lse)
        refused("lse must have the shape", dout, q, k, v, out, lse[:1])
        refused("return_dbias=True needs a bias", dout, q, k, v, out, lse, return_dbias=True)
        refused("return_dslopes=True needs slopes", dout, q, k, v, out, lse, return_dslopes=True)
        refused("lse must be an array, got None", dout, q, k, v, out, None)
        refused("dlse must have the shape", dout, q, k, v, out, lse, dlse=lse[:1])
        refused("dout must have the type float32 of q, got float16", dout.astype("float16"), q, k,
                v, out, lse)
        bias = numpy.broadcast_to(self.draw(1, 1, 20, 30), (2, 4, 20, 30))
        refused("bias repeats elements", dout, q, k, v, out, lse, bias=bias, return_dbias=True)
        slopes = numpy.broadcast_to(self.draw(4), (2, 4))
        refused("slopes repeats elements", dout, q, k, v, out, lse, slopes=slopes,
                return_dslopes=True)


if __name__ == "__main__":
    unittest.main()
