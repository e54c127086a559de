"""Attention of numbers of 8 bits and their factors, against the definition in fp64."""
import ml_dtypes
import numpy

import tessera
from support import wide
from test_attention import Attended, Expected
from test_paged_attention import Cache

TYPES = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
EIGHT = TYPES[0]


def spread(factors, block, tokens):
    """Of blocks (heads, blocks): (heads, tokens, 1), a factor for each token."""
    return numpy.repeat(factors, block, -1)[:, :tokens, None]


class EightBits(Attended):
    def factors(self, *shape):
        return self.random.uniform(0.5, 2, shape).astype("float32")

    def near_each(self, out, lse, q, k, v, factors, **how):
        """factors: for sequence b those of q, k and v, (heads, tokens, 1) or numbers."""
        for b in range(len(q)):
            real = [wide(x[b].swapaxes(0, 1)) * by for x, by in zip((q, k, v), factors(b))]
            expected = Expected(*real, dtype="float16", **how)
            self.near(out[b].swapaxes(0, 1), lse[b], expected)

    def test_without_factors(self):
        q, k, v = self.tensors(2, 20, 30, dtype=TYPES[1])
        out, lse = tessera.attention(q, k, v, return_lse=True, mask="bottom_right")
        self.assertEqual(out.dtype, numpy.float16)
        self.near_each(out, lse, q, k, v, lambda b: (1, 1, 1), mask="bottom_right")

    def test_one_factor_each(self):
        for dtype in TYPES:
            q, k, v = self.tensors(2, 20, 30, dtype=dtype)
            for _ in range(2):  # the second call is a warm one
                out, lse = tessera.attention(q, k, v, descale_q=0.5, descale_k=1.5,
                                             descale_v=numpy.float32(3), return_lse=True)
                self.near_each(out, lse, q, k, v, lambda b: (0.5, 1.5, 3))

    def test_factors_of_blocks(self):
        q, k, v = self.tensors(2, 20, 300, dtype=EIGHT)
        of_q, of_k, of_v = self.factors(2, 4, 3), self.factors(2, 2, 3), self.factors(2, 2, 3)
        out, lse = tessera.attention(q, k, v, descale_q=of_q, descale_k=of_k, descale_v=of_v,
                                     scale_block_q=8, return_lse=True)
        self.near_each(out, lse, q, k, v, lambda b: (
            spread(of_q[b], 8, 20), spread(of_k[b], 128, 300), spread(of_v[b], 128, 300)))
        out, lse = tessera.attention(q, k, v, descale_q=2, descale_k=of_k, descale_v=of_v,
                                     scale_block_k=100, return_lse=True)
        self.near_each(out, lse, q, k, v, lambda b: (
            2, spread(of_k[b], 100, 300), spread(of_v[b], 100, 300)))

    def test_factors_of_pages(self):
        for layout in ("bshd", "runs"):
            cache = Cache(self, [40, 17], 16, hdim_v=16, dtype=EIGHT, layout=layout)
            q = self.draw(2, 1, 4, 16, dtype=EIGHT)
            of_k, of_v = self.factors(len(cache.k), 2), self.factors(len(cache.k), 2)
            out, lse = tessera.attention(q, *cache.arrays(), page_table=cache.table,
                                         seqlens_k=cache.lengths, descale_q=0.5, descale_k=of_k,
                                         descale_v=of_v, return_lse=True)
            for b, keys in enumerate(cache.lengths):
                k, v = (wide(x) * spread(by[cache.pages(b)].T, 16, keys)
                        for x, by in zip(cache.sequence(b), (of_k, of_v)))
                expected = Expected(wide(q[b].swapaxes(0, 1)) * 0.5, k, v, dtype="float16")
                self.near(out[b].swapaxes(0, 1), lse[b], expected)

    def test_keys_of_eight_bits_beside_other_queries(self):
        for dtype, kv in (("float32", TYPES[0]), ("float16", TYPES[1]),
                          (ml_dtypes.bfloat16, TYPES[0])):
            q = self.draw(2, 20, 4, 32, dtype=dtype)
            k, v = self.draw(2, 30, 2, 32, dtype=kv), self.draw(2, 30, 2, 32, dtype=kv)
            heads, tokens = self.factors(2), self.factors(2, 2, 30)
            for of_k, of_v, factors in (
                    (None, None, lambda b: (1, 1, 1)), (1.5, 3, lambda b: (1, 1.5, 3)),
                    (heads, heads, lambda b: (1, heads[:, None, None], heads[:, None, None])),
                    (tokens, tokens, lambda b: (1, tokens[b][..., None], tokens[b][..., None]))):
                out, lse = tessera.attention(q, k, v, descale_k=of_k, descale_v=of_v,
                                             return_lse=True)
                self.assertEqual(out.dtype, numpy.dtype(dtype))
                for b in range(2):
                    real = [wide(x[b].swapaxes(0, 1)) * by
                            for x, by in zip((q, k, v), factors(b))]
                    expected = Expected(*real, dtype=numpy.dtype(dtype).name)
                    self.near(out[b].swapaxes(0, 1), lse[b], expected)

    def test_factors_of_tokens_in_pages(self):
        cache = Cache(self, [40, 17], 16, hdim_v=16, dtype=EIGHT)
        q = self.draw(2, 1, 4, 16, dtype="float16")
        of_k, of_v = self.factors(len(cache.k), 2, 16), self.factors(len(cache.k), 2, 16)
        out, lse = tessera.attention(q, *cache.arrays(), page_table=cache.table,
                                     seqlens_k=cache.lengths, descale_k=of_k, descale_v=of_v,
                                     return_lse=True)
        for b, keys in enumerate(cache.lengths):
            k, v = (wide(x) * by[cache.pages(b)].swapaxes(0, 1).reshape(2, -1)[:, :keys, None]
                    for x, by in zip(cache.sequence(b), (of_k, of_v)))
            expected = Expected(wide(q[b].swapaxes(0, 1)), k, v, dtype="float16")
            self.near(out[b].swapaxes(0, 1), lse[b], expected)

    def test_results_of_eight_bits(self):
        dtype = TYPES[1]
        q, k, v = self.tensors(2, 20, 30, dtype=EIGHT)
        exact = tessera.attention(q, k, v, descale_q=1, descale_k=1, descale_v=2,
                                  out=numpy.empty((2, 20, 4, 32), "float32"))
        for scale_o in (None, 4.0, 1e5):
            out = numpy.empty((2, 20, 4, 32), dtype)
            tessera.attention(q, k, v, descale_q=1, descale_k=1, descale_v=2, scale_o=scale_o,
                              out=out)
            most = float(ml_dtypes.finfo(dtype).max)
            wanted = numpy.clip(wide(exact) * (scale_o or 1), -most, most)
            self.assert_near(out, wanted, 2.0**-3 * 1.001 * abs(wanted) + 2.0**-17)

    def test_refusals(self):
        q, k, v = self.tensors(2, 6, 9, dtype=EIGHT)
        one = {"descale_q": 1, "descale_k": 1, "descale_v": 1}

        def refused(sentence, *arrays, **named):
            self.assert_refused(sentence, tessera.attention, *(arrays or (q, k, v)), **named)

        refused("descale_v must be given beside the other factors of q, k and v", descale_q=1,
                descale_k=1)
        wide_q = self.draw(2, 6, 4, 32, dtype="float16")
        refused("descale_v must be given beside the other factors of k and v", wide_q, k, v,
                descale_k=1)
        refused("k has the type float8_e4m3fn and v float8_e5m2; the two must be equal", wide_q,
                k, v.astype(TYPES[1]))
        refused("descale_k must be a number or an array of float32, got 'x'",
                **{**one, "descale_k": "x"})
        refused("descale_q, descale_k and descale_v are for q, k and v of float8, got float32",
                *self.tensors(2, 6, 9), **one)
        refused("scale_o is for a result of float8, got float16; give out of that type", scale_o=2,
                **one)
        blocks = numpy.ones((2, 2, 1), "float32")
        refused(r"descale_q must have the shape \(2, 4, 1\) \(sequences, heads, blocks of 128 "
                r"queries\), got \(2, 2, 1\)",
                descale_q=blocks, descale_k=blocks, descale_v=blocks)
        refused(r"descale_v must have the shape \(2, 2, 1\) \(sequences, heads, blocks of 128 "
                r"keys\), got \(1,\)", descale_q=1, descale_k=blocks, descale_v=1)
        refused("descale_k must have the type float32, got float16", descale_q=1,
                descale_k=blocks.astype("float16"), descale_v=blocks)
        refused("fmha: qscale_block_k must be left out with qscale=per_tensor, got 64",
                scale_block_k=64, **one)
        refused("fmha: qscale_block_k must be at least 1, got 0", scale_block_k=0, descale_q=1,
                descale_k=numpy.ones((2, 2, 9), "float32"),
                descale_v=numpy.ones((2, 2, 9), "float32"))


class Problems(Attended):
    def test_builder(self):
        problem = tessera.attention_problem(batch=2, heads=4, seqlen_q=5, seqlen_k=6, hdim=8,
                                            dtype="fp8", qscale="per_block", qscale_block_k=64)
        self.assertEqual(str(problem), "fmha batch=2 heads=4 seqlen_q=5 seqlen_k=6 hdim=8 "
                                       "dtype=fp8 qscale=per_block qscale_block_k=64")
