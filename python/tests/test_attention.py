"""Attention against its definition in fp64."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROUNDING, SEED, Case, random_numbers, wide
from test_arrays import Shared

U = 2.0**-24  # half an ulp of fp32, 1 being the number
WIDE_TYPES = ("float32", "float16", ml_dtypes.bfloat16)


def heads_first(array, layout):
    return numpy.swapaxes(array, -2, -3) if layout == "bshd" else array


def seen_keys(queries, keys, mask, window, sink):
    """Which key each query sees."""
    i, j = numpy.arange(queries)[:, None], numpy.arange(keys)[None]
    if mask is None:
        return numpy.ones((queries, keys), bool)
    i = i + (keys - queries if mask == "bottom_right" else 0)
    left, right = window or (-1, 0)
    seen = (left < 0) | (i - left <= j) | (j < sink)
    return seen & ((right < 0) | (j <= i + right))


def philox(counter, key):
    """Philox4x32-10 of arrays of counters: four words, each an array of uint64."""
    mask = numpy.uint64(2**32 - 1)
    c = [numpy.asarray(word, "uint64") & mask for word in counter]
    for _ in range(10):
        a, b = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        c = [b >> numpy.uint64(32) ^ c[1] ^ numpy.uint64(key[0]), b & mask,
             a >> numpy.uint64(32) ^ c[3] ^ numpy.uint64(key[1]), a & mask]
        key = (key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32
    return c


def random_bytes(seed, offset, heads, queries, keys):
    """Of heads [0, heads) of the batch: (heads, queries, keys), as docs/attention.md has it."""
    parts = -(-keys // 16)
    head, query, part = numpy.meshgrid(*(numpy.arange(n) for n in (heads, queries, parts)),
                                       indexing="ij")
    words = philox((part, query, head, numpy.full(part.shape, offset % 2**32)),
                   (seed % 2**32, seed >> 32 ^ offset >> 32))
    words = numpy.stack(words, -1).astype("<u4")
    return words.view("uint8").reshape(heads, queries, 16 * parts)[..., :keys]


class Expected:
    """Of one sequence: q (heads, queries, hdim), k and v (heads_kv, keys, hdim). out, lse, and how
    far a kernel that sums in fp32 may be from them."""

    def __init__(self, q, k, v, mask=None, window=None, sink=0, bias=None, slopes=None, scale=None,
                 soft_cap=0.0, factors=1.0, dtype="float32"):
        """factors: what dropout multiplies each weight with."""
        self.factors = factors
        q, k, v = wide(q), wide(k), wide(v)
        k, v = (numpy.repeat(x, len(q) // len(k), 0) for x in (k, v))
        (_, queries, hdim), keys = q.shape, k.shape[1]
        scale = hdim**-0.5 if scale is None else scale
        scores = scale * q @ k.swapaxes(1, 2)
        sizes = abs(scale) * abs(q) @ abs(k).swapaxes(1, 2) * (hdim + 8)
        if soft_cap:
            scores, sizes = soft_cap * numpy.tanh(scores / soft_cap), sizes + 16 * soft_cap
        if bias is not None:
            scores = scores + wide(bias)
            sizes = sizes + numpy.where(numpy.isfinite(bias), abs(wide(bias)), 0)
        if slopes is not None:
            far = abs(numpy.arange(queries)[:, None] + keys - queries - numpy.arange(keys)[None])
            scores = scores - wide(slopes)[:, None, None] * far
            sizes = sizes + abs(wide(slopes)[:, None, None]) * far
        scores = numpy.where(seen_keys(queries, keys, mask, window, sink), scores, -numpy.inf)
        self.finish(scores, sizes, v, keys, ROUNDING[numpy.dtype(dtype).name])

    def finish(self, scores, sizes, v, keys, rounding):
        seen = numpy.isfinite(scores)
        most = numpy.where(seen.any(-1), scores.max(-1, initial=-numpy.inf), 0)[..., None]
        weights = numpy.exp(scores - most)
        total = weights.sum(-1, keepdims=True)
        share = numpy.divide(weights, total, out=numpy.zeros_like(weights), where=total > 0)
        share = share * self.factors
        self.out = share @ v
        with numpy.errstate(divide="ignore"):
            self.lse = (numpy.log(total) + most)[..., 0]
        sizes = numpy.where(seen, sizes + 12 * abs(numpy.where(seen, scores, 0)), 0)
        error = U * (sizes.max(-1, initial=0) + 4 * keys + 64)
        lost = numpy.expm1(2 * error)[..., None] + (2 * rounding if rounding > U else 0)
        self.bound = (lost * (share @ abs(v)) + rounding * abs(self.out) + 1e-30)
        self.lse_bound = error + 4 * U * abs(numpy.where(numpy.isfinite(self.lse), self.lse, 0))


class Attended(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def pick(self, low, high):
        return int(self.random.integers(low, high))

    def tensors(self, batch, queries, keys, heads=4, heads_kv=2, hdim=32, hdim_v=None,
                dtype="float32"):
        return (self.draw(batch, queries, heads, hdim, dtype=dtype),
                self.draw(batch, keys, heads_kv, hdim, dtype=dtype),
                self.draw(batch, keys, heads_kv, hdim_v or hdim, dtype=dtype))

    def near(self, out, lse, expected):
        """out: (heads, queries, hdim_v), lse: (heads, queries)."""
        self.assertEqual(out.shape, expected.out.shape)
        if out.size:
            self.assert_near(out, expected.out, expected.bound)
        if lse is None or not lse.size:
            return
        self.assertEqual(lse.dtype, numpy.float32)
        none = numpy.isneginf(expected.lse)
        numpy.testing.assert_array_equal(numpy.isneginf(lse), none, f"seed {SEED}")
        kept = numpy.where(none, 0, lse)
        self.assert_near(kept, numpy.where(none, 0, expected.lse), expected.lse_bound)

    def check(self, q, k, v, layout="bshd", bias=None, slopes=None, **how):
        """Of equal sequences, twice: the second call is a warm one."""
        given = [heads_first(x, "bshd") if layout == "bhsd" else x for x in (q, k, v)]
        for _ in range(2):
            out, lse = tessera.attention(*given, layout=layout, bias=bias, slopes=slopes,
                                         return_lse=True, **how)
            self.assertEqual(out.dtype, q.dtype)
            for b in range(len(q)):
                more = dict(how)
                if bias is not None:
                    full = (len(q), q.shape[2], q.shape[1], k.shape[1])
                    more["bias"] = numpy.broadcast_to(bias, full)[b]
                if slopes is not None:
                    more["slopes"] = slopes if slopes.ndim == 1 else slopes[b]
                expected = Expected(*[heads_first(x[b], "bshd") for x in (q, k, v)], dtype=q.dtype,
                                    **more)
                self.near(heads_first(out[b], layout), lse[b], expected)
        return out


class Attention(Attended):
    def test_types_and_layouts(self):
        for dtype in WIDE_TYPES:
            for layout in ("bshd", "bhsd"):
                with self.subTest(dtype=dtype, layout=layout):
                    self.check(*self.tensors(2, 50, 70, dtype=dtype), layout=layout)

    def test_head_dimensions(self):
        for hdim, hdim_v in ((8, 8), (64, 64), (192, 128), (33, 7), (256, 256)):
            with self.subTest(hdim=hdim, hdim_v=hdim_v):
                self.check(*self.tensors(1, 9, 40, hdim=hdim, hdim_v=hdim_v))

    def test_groups(self):
        for heads, heads_kv in ((1, 1), (6, 6), (6, 2), (6, 1)):
            with self.subTest(heads=heads, heads_kv=heads_kv):
                self.check(*self.tensors(2, 17, 33, heads=heads, heads_kv=heads_kv))

    def test_masks(self):
        for queries, keys in ((40, 40), (20, 50), (50, 20), (1, 30)):
            for mask in ("top_left", "bottom_right"):
                for how in ({}, {"window": (7, 0)}, {"window": (5, 3), "sink": 4},
                            {"window": (-1, 2)}, {"window": (3, -1)}, {"window": [0, 0]}):
                    with self.subTest(queries=queries, keys=keys, mask=mask, **how):
                        self.check(*self.tensors(1, queries, keys), mask=mask, **how)

    def test_fully_masked_rows(self):
        """More queries than keys: the first ones see none."""
        q, k, v = self.tensors(2, 30, 10)
        out = self.check(q, k, v, mask="bottom_right")
        numpy.testing.assert_array_equal(out[:, :20], 0)
        self.check(q, k, v, bias=numpy.full((30, 10), -numpy.inf, "float32"))

    def test_bias(self):
        q, k, v = self.tensors(3, 21, 34)
        for shape in ((3, 4, 21, 34), (3, 1, 21, 34), (4, 21, 34), (21, 34), (34,), (3, 4, 1, 34),
                      (1, 1, 1, 1)):
            with self.subTest(shape=shape):
                self.check(q, k, v, bias=self.draw(*shape))
        self.check(q, k, v, bias=self.draw(4, 21, 34, dtype="float16"))
        hidden = numpy.where(self.random.random((21, 34)) < 0.5, 0, -numpy.inf).astype("float32")
        self.check(q, k, v, bias=hidden)
        both = self.draw(4, 34, 21).swapaxes(1, 2)  # the queries are innermost
        self.check(q, k, v, bias=both)

    def test_slopes(self):
        q, k, v = self.tensors(3, 21, 34)
        slopes = (2.0 ** -numpy.arange(1, 5)).astype("float32")
        self.check(q, k, v, slopes=slopes)
        self.check(q, k, v, slopes=abs(self.draw(3, 4)), mask="bottom_right")
        self.check(q, k, v, slopes=abs(self.draw(3, 9))[:, 2:6])

    def test_scale_and_soft_cap(self):
        q, k, v = self.tensors(2, 21, 34)
        for how in ({"scale": 0.3}, {"scale": -0.1}, {"soft_cap": 3.0},
                    {"scale": 2.0, "soft_cap": 20.0}):
            with self.subTest(**how):
                self.check(q, k, v, **how)

    def test_large_scores(self):
        q, k, v = self.tensors(1, 12, 60)
        self.check(q * 30, k * 30, v)

    def test_random(self):
        for i in range(8):  # each may be a kernel to compile
            heads_kv = self.pick(1, 4)
            queries, keys = self.pick(1, 90), self.pick(1, 150)
            hdim = 8 * self.pick(1, 17)
            q, k, v = self.tensors(self.pick(1, 4), queries, keys, heads_kv * self.pick(1, 4),
                                   heads_kv, hdim, 8 * self.pick(1, 17),
                                   dtype=WIDE_TYPES[self.pick(0, 3)])
            how = {"layout": ("bshd", "bhsd")[self.pick(0, 2)]}
            if self.pick(0, 2):
                how.update(mask=("top_left", "bottom_right")[self.pick(0, 2)],
                           window=(self.pick(-1, 60), self.pick(-1, 20)), sink=self.pick(0, 9))
            added = self.pick(0, 3)
            if added == 1:
                how["bias"] = self.draw(q.shape[2], queries, keys)
            if added == 2:
                how["slopes"] = abs(self.draw(q.shape[2])) / 4
            if self.pick(0, 2):
                how.update(scale=float(self.random.uniform(0.05, 0.5)), soft_cap=10.0)
            with self.subTest(i=i, seed=SEED, shapes=(q.shape, k.shape, v.shape), dtype=q.dtype):
                self.check(q, k, v, **how)

    def test_nothing(self):
        for batch, queries, keys in ((0, 5, 5), (2, 0, 5), (2, 5, 0)):
            self.check(*self.tensors(batch, queries, keys))


class Dropout(Attended):
    def word(self):
        return self.pick(-2**63, 2**63 - 1) % 2**64

    def check(self, q, k, v, dropout, **how):
        """The random values are those of the definition, and the result that of the weights that
        they leave."""
        seed, offset, kept = self.word(), self.word(), max(1, round(256 * (1 - dropout)))
        batch, queries, heads, _ = q.shape
        keys = k.shape[1]
        all_bytes = random_bytes(seed, offset, batch * heads, queries, keys)
        seen = seen_keys(queries, keys, how.get("mask"), how.get("window"), how.get("sink", 0))
        for given in ((seed, offset), (numpy.array([seed, offset], "uint64"), 0)):
            out, lse, random = tessera.attention(q, k, v, dropout=dropout, seed=given[0],
                                                 offset=given[1], return_lse=True,
                                                 return_random=True, **how)
            self.assertEqual(random.dtype, numpy.uint8)
            for b in range(batch):
                mine = all_bytes[b * heads:(b + 1) * heads]
                numpy.testing.assert_array_equal(random[b], numpy.where(seen, mine, 0))
                factors = numpy.where(mine < kept, 256 / kept, 0.0)
                self.near(heads_first(out[b], "bshd"), lse[b],
                          Expected(*[heads_first(x[b], "bshd") for x in (q, k, v)],
                                   factors=factors, dtype=q.dtype, **how))
        return out

    def test_definition(self):
        for dtype in WIDE_TYPES:
            for dropout in (0.1, 0.5, 0.9):
                with self.subTest(dtype=dtype, dropout=dropout):
                    self.check(*self.tensors(2, 21, 70, dtype=dtype), dropout)

    def test_masks(self):
        for how in ({"mask": "top_left"}, {"mask": "bottom_right", "window": (5, 3), "sink": 4},
                    {"soft_cap": 3.0, "scale": 0.5}):
            with self.subTest(**how):
                self.check(*self.tensors(2, 40, 50), 0.3, **how)

    def test_packed(self):
        """Masks are those of each sequence alone, whose place in the batch decides."""
        q, k, v = self.tensors(2, 9, 20)
        given = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
        how = {"dropout": 0.4, "seed": 7, "offset": 3, "return_random": True}
        out, random = tessera.attention(*given, seqlens_q=[0, 9, 18], seqlens_k=[0, 20, 40], **how)
        plain, same = tessera.attention(q, k, v, **how)
        self.assertEqual(random.shape, (4, 18, 20))
        numpy.testing.assert_array_equal(random.reshape(4, 2, 9, 20).swapaxes(0, 1), same)
        numpy.testing.assert_allclose(out.reshape(plain.shape), plain, atol=1e-5)

    def test_seed_and_offset(self):
        q, k, v = self.tensors(2, 9, 200)
        call = lambda **how: tessera.attention(q, k, v, dropout=0.5, **how)
        first = call(seed=11, offset=4)
        numpy.testing.assert_array_equal(call(seed=11, offset=4), first)
        numpy.testing.assert_array_equal(call(seed=numpy.array([11, 4])), first)
        for how in ({"seed": 12, "offset": 4}, {"seed": 11, "offset": 5}, {"seed": 11 + 2**40,
                    "offset": 4}, {"seed": 11}):
            self.assertFalse((call(**how) == first).all())
        numpy.testing.assert_array_equal(call(seed=-1), call(seed=2**64 - 1))

    def test_no_dropout(self):
        """Neither a seed nor random values are needed."""
        q, k, v = self.tensors(1, 9, 20)
        numpy.testing.assert_array_equal(tessera.attention(q, k, v, dropout=0.0, seed=3),
                                         tessera.attention(q, k, v))

    def test_other_arrays(self):
        q, k, v = self.tensors(1, 9, 20)
        how = {"dropout": 0.4, "seed": 7}
        numpy.testing.assert_array_equal(
            tessera.attention(Shared(q), Shared(k), Shared(v), **how),
            tessera.attention(q, k, v, **how))

    def test_refusals(self):
        q, k, v = self.tensors(1, 9, 20)
        refused = lambda pattern, **how: self.assert_refused(pattern, tessera.attention, q, k, v,
                                                             **how)
        refused("p_drop must be at least 0 .none. and below 1, got 1", dropout=1.0, seed=1)
        refused("p_drop must be at least 0 .none. and below 1, got -0.5", dropout=-0.5, seed=1)
        refused("p_drop must be at least 0 .none. and below 1, got nan", dropout=float("nan"),
                seed=1)
        refused("seed must be given with dropout", dropout=0.5)
        refused("seed must be a whole number, got 1.5", dropout=0.5, seed=1.5)
        refused(r"offset must be at least -2\^63 and below 2\^64, got 18446744073709551616",
                dropout=0.5, seed=1, offset=2**64)
        refused(r"the shape \(2,\) and the type int64 or uint64, got \(3,\) and int64",
                dropout=0.5, seed=numpy.array([1, 2, 3]))
        refused("got .2,. and float64", dropout=0.5, seed=numpy.array([1.0, 2.0]))
        refused("offset must be 0 where seed is an array, .*, got 3", dropout=0.5,
                seed=numpy.array([1, 2]), offset=3)
        refused("dropout_rng must have no gaps", dropout=0.5,
                seed=numpy.array([1, 2, 3])[::2])
        refused("random must be 0 without dropout", return_random=True)


class Lengths(Attended):
    """Sequences of several lengths."""

    def lengths(self, batch, most):
        return self.random.integers(0, most + 1, batch)

    def sums(self, lengths):
        return numpy.concatenate([[0], numpy.cumsum(lengths)])

    def test_packed(self):
        for layout in ("bshd", "bhsd"):
            for how in ({}, {"mask": "top_left"}, {"mask": "bottom_right", "window": (9, 2)},
                        {"slopes": numpy.float32([0.5, 0.25, 0.125, 0.1])}):
                with self.subTest(layout=layout, how=list(how)):
                    self.check_packed("float32", layout, how)
        self.check_packed(ml_dtypes.bfloat16, "bshd", {})

    def check_packed(self, dtype, layout, how):
        of_q, of_k = (self.sums(self.lengths(5, most)) for most in (30, 50))
        q, k, v = (x[0] for x in self.tensors(1, of_q[-1], of_k[-1], dtype=dtype))
        given = [heads_first(x, "bshd") if layout == "bhsd" else x for x in (q, k, v)]
        for kind in (list, lambda x: x.astype("int32")):
            out, lse = tessera.attention(*given, seqlens_q=kind(of_q), seqlens_k=kind(of_k),
                                         layout=layout, return_lse=True, **how)
            self.assertEqual(lse.shape, (4, of_q[-1]))
            for b in range(5):
                rows, keys = (slice(s[b], s[b + 1]) for s in (of_q, of_k))
                expected = Expected(*[heads_first(x, "bshd") for x in (q[rows], k[keys], v[keys])],
                                    dtype=dtype, **how)
                self.near(heads_first(out, layout)[:, rows], lse[:, rows], expected)

    def test_packed_with_a_bound(self):
        q, k, v = (x[0] for x in self.tensors(1, 12, 12))
        sums = [0, 5, 12]
        plain = tessera.attention(q, k, v, seqlens_q=sums, seqlens_k=sums, return_lse=True)
        bounded = tessera.attention(q, k, v, seqlens_q=sums, seqlens_k=sums, max_seqlen_q=9,
                                    max_seqlen_k=7, return_lse=True)
        numpy.testing.assert_allclose(plain[0], bounded[0], atol=1e-5)

    def test_padded(self):
        for layout in ("bshd", "bhsd"):
            q, k, v = self.tensors(5, 30, 50)
            given = [heads_first(x, "bshd") if layout == "bhsd" else x for x in (q, k, v)]
            of_q, of_k = self.lengths(5, 30), self.lengths(5, 50)
            for how in ({"seqlens_q": of_q, "seqlens_k": of_k}, {"seqlens_k": of_k},
                        {"seqlens_q": of_q}, {"seqlens_q": of_q, "skip_q": 12}):
                out, lse = tessera.attention(*given, layout=layout, mask="bottom_right",
                                             return_lse=True, **how)
                for b in range(5):
                    queries = how["seqlens_q"][b] if "seqlens_q" in how else 30
                    queries = 0 if queries <= how.get("skip_q", 0) else queries
                    keys = how["seqlens_k"][b] if "seqlens_k" in how else 50
                    expected = Expected(*[heads_first(x, "bshd") for x in (
                        q[b, :queries], k[b, :keys], v[b, :keys])], mask="bottom_right")
                    mine = heads_first(out[b], layout)
                    self.near(mine[:, :queries], lse[b][:, :queries], expected)
                    numpy.testing.assert_array_equal(mine[:, queries:], 0)
                    numpy.testing.assert_array_equal(lse[b][:, queries:], -numpy.inf)

    def test_rows_that_are_not_written(self):
        q, k, v = self.tensors(3, 8, 9)
        out, lse = numpy.full_like(q, 7), numpy.full((3, 4, 8), 7, "float32")
        tessera.attention(q, k, v, seqlens_q=[3, 0, 8], out=out, lse=lse)
        numpy.testing.assert_array_equal(out[0, 3:], 7)
        numpy.testing.assert_array_equal(out[1], 7)
        numpy.testing.assert_array_equal(lse[0, :, 3:], 7)
        self.assertTrue((out[2] != 7).all())


class Memory(Attended):
    """Views, which are taken as they lie."""

    def test_strides(self):
        """One array of q, k and v; steps between tokens and between elements; no own memory."""
        both = self.draw(2, 19, 3, 4, 32)
        self.check(both[:, :, 0], both[:, :, 1], both[:, :, 2])
        q, k, v = self.tensors(2, 40, 60, hdim=64)
        self.check(q[:, ::2], k[:, 1::3], v[:, 1::3])
        self.check(q[..., ::2], k[..., 1::2], v[..., ::4])
        self.check(q, numpy.broadcast_to(k[:1], k.shape), numpy.broadcast_to(v[:1], v.shape))

    def test_result_lies_as_q(self):
        q, k, v = self.tensors(2, 9, 11)
        out = tessera.attention(*[x.swapaxes(1, 2) for x in (q, k, v)], layout="bhsd")
        self.assertTrue(out.swapaxes(1, 2).flags.c_contiguous)
        numpy.testing.assert_array_equal(out.swapaxes(1, 2), tessera.attention(q, k, v))

    def test_results_in_place(self):
        q, k, v = self.tensors(2, 9, 11)
        memory, lse = numpy.full((2, 9, 6, 32), 7, "float32"), numpy.empty((2, 4, 9), "float32")
        for _ in range(2):
            got = tessera.attention(q, k, v, out=memory[:, :, 1:5], lse=lse, return_lse=True)
            self.assertIs(got[1], lse)
        numpy.testing.assert_array_equal(memory[:, :, [0, 5]], 7)
        plain = tessera.attention(q, k, v, return_lse=True)
        numpy.testing.assert_array_equal(memory[:, :, 1:5], plain[0])
        numpy.testing.assert_array_equal(lse, plain[1])

    def test_dlpack(self):
        q, k, v = self.tensors(2, 9, 11)
        plain = tessera.attention(q, k, v, seqlens_k=[4, 11], return_lse=True)
        out, lse = numpy.zeros_like(q), numpy.zeros((2, 4, 9), "float32")
        tessera.attention(Shared(q), Shared(k), Shared(v), seqlens_k=[4, 11], out=Shared(out),
                          lse=Shared(lse))
        made = tessera.attention(Shared(q), Shared(k), Shared(v), seqlens_k=[4, 11],
                                 return_lse=True)
        for mine, same, wanted in zip((out, lse), made, plain):
            numpy.testing.assert_array_equal(mine, wanted)
            numpy.testing.assert_array_equal(same, wanted)

    def test_wider_result(self):
        q, k, v = self.tensors(1, 9, 11, dtype="float16")
        out = numpy.empty(q.shape, "float32")
        tessera.attention(q, k, v, out=out)
        numpy.testing.assert_array_equal(out.astype("float16"), tessera.attention(q, k, v))

    def test_problem_of_plain_arrays_has_no_strides(self):
        q, k, v = self.tensors(2, 8, 9, dtype="float16")
        mine = tessera.Dispatcher()
        tessera.attention(q, k, v, mask="top_left", dispatcher=mine)
        (plan, _), = mine._plans.values()
        self.assertEqual(plan.problem, tessera.attention_problem(
            batch=2, heads=4, heads_kv=2, seqlen_q=8, seqlen_k=9, hdim=32, dtype="fp16",
            mask="top_left"))


class Problems(Attended):
    def test_builder(self):
        made = tessera.attention_problem(batch=2, heads=8, heads_kv=2, seqlen_q=20, seqlen_k=30,
                                         hdim=192, hdim_v=128, dtype=numpy.float16,
                                         mask="bottom_right", window=(4, 1), sink=2, lse=True)
        line = ("fmha batch=2 heads=8 heads_kv=2 seqlen_q=20 seqlen_k=30 hdim=192 hdim_v=128 "
                "dtype=fp16 mask=bottom_right window_left=4 window_right=1 sink=2 lse=1")
        self.assertEqual(made, tessera.Problem(line))
        self.assertEqual([operand.name for operand in made.operands], ["q", "k", "v", "out", "lse"])
        self.assertEqual(tessera.Problem(made.line), made)
        self.assertEqual(tessera.Problem.from_json(made.to_json()), made)

    def test_heads_first(self):
        made = tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=5, seqlen_k=7,
                                         hdim=8, layout="bhsd")
        self.assertEqual([operand.strides for operand in made.operands],
                         [(160, 40, 8, 1), (112, 56, 8, 1), (112, 56, 8, 1), (160, 40, 8, 1)])
        self.assertEqual(tessera.Problem.from_json(made.to_json()), made)
        self.assertEqual(made.flops, 2 * 2 * 2 * 4 * 5 * 7 * 8)

    def test_run(self):
        """A whole problem, its operands by name."""
        q, k, v = self.tensors(2, 5, 7)
        problem = tessera.attention_problem(batch=2, heads=4, heads_kv=2, seqlen_q=5, seqlen_k=7,
                                            hdim=32)
        out = tessera.run(problem, q=q, k=k, v=v, verify=True)
        self.assertEqual(out.shape, (2, 4, 5, 32))  # that of the operand, in the memory of q
        numpy.testing.assert_array_equal(out.swapaxes(1, 2), tessera.attention(q, k, v))

    def test_plan(self):
        plan = tessera.Dispatcher().plan("fmha batch=1 heads=2 seqlen_q=9 seqlen_k=9 hdim=16")
        plan.verify()
        self.assertGreater(plan.bench(rounds=3)["median_seconds"], 0)


class Refusals(Attended):
    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = self.tensors(2, 6, 9)

    def refused(self, pattern, *arguments, **named):
        self.assert_refused(pattern, tessera.attention, *(arguments or (self.q, self.k, self.v)),
                            **named)

    def test_shapes(self):
        q, k, v = self.q, self.k, self.v
        self.refused("^attention: q must have 4 dimensions, or 3 where sequences are packed, got 2",
                     q[0, 0], k, v)
        self.refused("q has 4 dimensions and k 3; the two must be equal", q, k[0], v)
        self.refused("q has 2 sequences and k 1; the two must be equal", q, k[:1], v)
        self.refused("q has 31 elements a head and k 32; the two must be equal", q[..., 1:], k, v)
        self.refused("k has 2 heads and v 1; the two must be equal", q, k, v[:, :, :1])
        self.refused("k has 9 tokens and v 8; the two must be equal", q, k, v[:, 1:])
        self.refused("heads_kv must divide heads, got heads_kv=2 and heads=3", q[:, :, :3], k, v)
        self.refused(r"out must have the shape \(2, 6, 4, 32\), got \(2, 6, 4, 31\)",
                     out=q[..., 1:].copy())
        self.refused(r"lse must have the shape \(2, 4, 6\) and the type float32, got \(2, 6, 4\)",
                     lse=numpy.zeros((2, 6, 4), "float32"))
        self.refused("lse must have no gaps", lse=numpy.zeros((2, 6, 4), "float32").swapaxes(1, 2))
        self.refused(r"layout must be one of bshd, bhsd, got 'sbhd'", layout="sbhd")
        long = numpy.zeros((1, 1, 1, 577), "float32")
        self.refused("hdim must be at most 576, got 577", long, long, long)

    def test_masks(self):
        self.refused("mask must be None or one of top_left, bottom_right, got 'causal'",
                     mask="causal")
        self.refused("window_left must be at least -1, got -2", mask="top_left", window=(-2, 0))
        self.refused("window_right must be at least -1, got -3", mask="top_left", window=(1, -3))
        self.refused("window must be a pair .left, right., got 3", mask="top_left", window=3)
        self.refused("window must be a whole number, got 1.5", mask="top_left", window=(1.5, 0))
        self.refused("window is for a mask, .*; got mask=None and window=.3, 0.", window=(3, 0))
        self.refused("sink is for a mask, .*; got mask=None and sink=3", sink=3)
        self.refused("sink must be at least 0, got -1", mask="top_left", sink=-1)

    def test_bias_and_scalars(self):
        bias, slopes = numpy.zeros((6, 8), "float32"), numpy.zeros(3, "float32")
        self.refused(r"bias must have the shape \(2, 4, 6, 9\) .*, got \(6, 8\)", bias=bias)
        self.refused(r"slopes must have the shape \(4,\) or \(2, 4\) .*, got \(3,\)", slopes=slopes)
        self.refused("slopes must have the type float32, got float16",
                     slopes=numpy.zeros(4, "float16"))
        self.refused("bias and slopes cannot both be given", bias=bias, slopes=slopes)
        self.refused("scale must not be 0", scale=0.0)
        self.refused("scale must be finite, got nan", scale=float("nan"))
        self.refused("soft_cap must be finite and at least 0 .none., got -1", soft_cap=-1.0)
        self.refused("soft_cap must be a number, got 'x'", soft_cap="x")
        self.refused("skip_q must be 0 with lengths=equal, .*, got 3", skip_q=3)

    def test_lengths(self):
        packed = self.q[0], self.k[0], self.v[0]
        sums_k = [0, 9]
        self.refused("need seqlens_q and seqlens_k", *packed)
        self.refused("seqlens_k must be given beside the other one for packed tokens", *packed,
                     seqlens_q=[0, 6])
        self.refused("seqlens_q ends with 5, but q has 6 tokens; the two must be equal", *packed,
                     seqlens_q=[0, 5], seqlens_k=sums_k)
        self.refused("seqlens_q must begin with 0, got 1", *packed, seqlens_q=[1, 6],
                     seqlens_k=sums_k)
        self.refused(r"seqlens_q must not fall, but \[1\] is 4 and \[2\] is 3", *packed,
                     seqlens_q=[0, 4, 3, 6], seqlens_k=sums_k)
        self.refused("seqlens_q holds 3 prefix sums and seqlens_k 2; the two must be equal",
                     *packed, seqlens_q=[0, 2, 6], seqlens_k=sums_k)
        self.refused("max_seqlen_q must be at least 6, the longest of seqlens_q, got 5",
                     *packed, seqlens_q=[0, 6], seqlens_k=sums_k, max_seqlen_q=5)
        self.refused(r"seqlens_q\[1\] must be at least 0 and at most 6, .*, got 7",
                     seqlens_q=[6, 7])
        self.refused(r"seqlens_k\[0\] must be at least 0 and at most 9, .*, got -1",
                     seqlens_k=[-1, 2])
        self.refused("seqlens_k must hold 2 numbers, got 3", seqlens_k=[1, 2, 3])
        self.refused("seqlens_k must hold whole numbers, got the type float64", seqlens_k=[1.0, 2])
        self.refused("seqlens_k must have 1 dimension, got 2", seqlens_k=[[1, 2]])
        self.refused("max_seqlen_k is for packed tokens, .*; got 4", max_seqlen_k=4)

    def test_memory_and_types(self):
        q, k, v = self.q, self.k, self.v
        self.refused("strides of k must be at least 0, got -", q, k[:, ::-1], v)
        self.refused("q has the type float32 and k float16; the two must be equal", q,
                     k.astype("float16"), v)
        self.refused("q has the type float64", q.astype("float64"), k, v)
        self.refused("in must be fp32, fp16, bf16, fp8 or bf8, got int8", *(x.astype("int8")
                                                                  for x in (q, k, v)))
        self.refused("out must not overlap q", q, k, v, out=q)
        self.refused("out has stride 0 over 2 elements",
                     out=numpy.lib.stride_tricks.as_strided(q.copy(), q.shape, (0, 512, 128, 4)))
        fixed = q.copy()
        fixed.flags.writeable = False
        self.refused("out is read-only", out=fixed)
        self.refused("q must be an array", "text", k, v)


if __name__ == "__main__":
    unittest.main()
