"""Attention over pages of a cache, against its definition in fp64."""
import re

import ml_dtypes
import numpy

import tessera
from support import SEED
from test_attention import Attended, Expected, heads_first

TYPES = ("float32", "float16", ml_dtypes.bfloat16)


class Cache:
    """Keys and values of sequences in pages of one cache, which lie in any order."""

    def __init__(self, test, lengths, page_size, heads_kv=2, hdim=16, hdim_v=24, dtype="float32",
                 layout="bshd"):
        counts = [-(-n // page_size) for n in lengths]
        order = test.random.permutation(sum(counts) + 3)
        self.k = test.draw(len(order), page_size, heads_kv, hdim, dtype=dtype)
        self.v = test.draw(len(order), page_size, heads_kv, hdim_v, dtype=dtype)
        self.starts = numpy.cumsum([0, *counts]).astype("int32")
        self.list = order[:sum(counts)].astype("int32")
        self.table = numpy.full((len(lengths), max(counts) + 1), -1, "int32")
        for b, count in enumerate(counts):
            self.table[b, :count] = self.pages(b)
        self.lengths, self.layout = lengths, layout

    def pages(self, b):
        return self.list[self.starts[b]:self.starts[b + 1]]

    def sequence(self, b):
        """k and v of a sequence, (heads_kv, keys, hdim)."""
        both = (x[self.pages(b)].reshape(-1, *x.shape[2:]) for x in (self.k, self.v))
        return [x[:self.lengths[b]].swapaxes(0, 1) for x in both]

    def arrays(self):
        if self.layout == "bshd":
            return self.k, self.v
        if self.layout == "bhsd":
            return [numpy.ascontiguousarray(heads_first(x, "bshd")) for x in (self.k, self.v)]
        (pages, size, heads, hdim), run = self.k.shape, 16 // self.k.itemsize
        k = self.k.reshape(pages, size, heads, hdim // run, run).transpose(0, 2, 3, 1, 4)
        v = self.v.reshape(pages, size // run, run, heads, -1).transpose(0, 3, 1, 4, 2)
        return numpy.ascontiguousarray(k), numpy.ascontiguousarray(v)


    def take(self, k, v):
        """What arrays() gave, after it was changed."""
        if self.layout == "bhsd":
            k, v = (heads_first(x, "bhsd").swapaxes(1, 2) for x in (k, v))
        if self.layout == "runs":
            k = k.transpose(0, 3, 1, 2, 4).reshape(self.k.shape)
            v = v.transpose(0, 2, 4, 1, 3).reshape(self.v.shape)
        self.k, self.v = k, v


class PagedAttention(Attended):
    def run_cache(self, cache, q, how, is_list=False, layout="bshd"):
        how = {"page_table": cache.list if is_list else cache.table, **how}
        if is_list:
            how["page_starts"] = cache.starts
        return tessera.attention(q, *cache.arrays(), layout=layout, return_lse=True, **how)

    def check_padded(self, cache, dtype, is_list):
        """One query for each sequence, twice: the second call is a warm one."""
        layout = "bhsd" if cache.layout == "bhsd" else "bshd"
        q = self.draw(len(cache.lengths), 2, 4, 16, dtype=dtype)
        for _ in range(2):
            out, lse = self.run_cache(
                cache, heads_first(q, "bshd") if layout == "bhsd" else q,
                {"seqlens_k": cache.lengths, "mask": "bottom_right"}, is_list, layout)
            for b in range(len(q)):
                expected = Expected(q[b].swapaxes(0, 1), *cache.sequence(b), dtype=q.dtype,
                                    mask="bottom_right")
                self.near(heads_first(out[b], layout), lse[b], expected)

    def test_layouts_and_sizes_of_pages(self):
        for layout in ("bshd", "bhsd", "runs"):
            for page_size in (1, 16, 64, 1024):
                if layout == "runs" and page_size == 1:
                    continue
                dtype = TYPES[self.pick(0, 3)]
                lengths = [self.pick(1, 200) for _ in range(3)]
                with self.subTest(layout=layout, page_size=page_size, dtype=dtype, seed=SEED):
                    cache = Cache(self, lengths, page_size, dtype=dtype, layout=layout)
                    self.check_padded(cache, dtype, page_size in (16, 1024))

    def test_packed_queries(self):
        cache = Cache(self, [30, 0, 70], 8)
        counts = [3, 4, 9]
        sums = numpy.cumsum([0, *counts])
        q = self.draw(sums[-1], 4, 16)
        out, lse = self.run_cache(cache, q, {"seqlens_q": sums, "seqlens_k": cache.lengths})
        for b, count in enumerate(counts):
            part = slice(sums[b], sums[b + 1])
            expected = Expected(q[part].swapaxes(0, 1), *cache.sequence(b))
            self.near(out[part].swapaxes(0, 1), lse[:, part], expected)

    def test_full_pages_need_no_lengths(self):
        cache = Cache(self, [32, 32], 16)
        q = self.draw(2, 3, 4, 16)
        table = numpy.ascontiguousarray(cache.table[:, :2])
        out, lse = self.run_cache(cache, q, {"page_table": table})
        for b in range(2):
            self.near(out[b].swapaxes(0, 1), lse[b],
                      Expected(q[b].swapaxes(0, 1), *cache.sequence(b)))

    def test_a_bad_page_is_refused_and_nothing_written(self):
        cache = Cache(self, [40, 50], 16)
        q, out = self.draw(2, 1, 4, 16), numpy.full((2, 1, 4, 24), 7, "float32")
        how = {"seqlens_k": cache.lengths, "out": out}
        most = len(cache.k) - 1
        for is_list, place in ((False, "1, 3"), (True, str(cache.starts[1] + 3))):
            entry = cache.starts[1] + 3 if is_list else (1, 3)
            (cache.list if is_list else cache.table)[entry] = 9000
            for _ in range(2):
                self.assert_refused(
                    re.escape(f"attention: page_table[{place}] must be from 0 to {most}, got 9000"),
                    lambda: self.run_cache(cache, q, how, is_list))
                self.assertTrue((out == 7).all())
            self.run_cache(cache, q, {**how, "check_pages": False}, is_list)
            self.assertFalse((out == 7).any())
            out[:] = 7

    def test_what_does_not_fit_is_refused(self):
        cache = Cache(self, [40, 50], 16)
        q = self.draw(2, 1, 4, 16)
        runs = Cache(self, [40], 16, layout="runs").arrays()
        for sentence, call in (
                ("page_starts is for keys in pages, which need page_table",
                 lambda: tessera.attention(q, q, q, page_starts=[0, 1])),
                ("check_pages is for keys in pages, which need page_table",
                 lambda: tessera.attention(q, q, q, check_pages=True)),
                ("page_table of 1 dimension is a list, which needs page_starts",
                 lambda: tessera.attention(q, cache.k, cache.v, page_table=cache.list)),
                ("seqlens_k must be given with a list of pages, which may end within a page",
                 lambda: self.run_cache(cache, q, {}, True)),
                ("page_starts ends with 9, but page_table holds 7 pages",
                 lambda: tessera.attention(q, cache.k, cache.v, page_table=cache.list,
                                           page_starts=[0, 3, 9])),
                ("q has 2 sequences and page_table 1; the two must be equal",
                 lambda: self.run_cache(cache, q, {"page_table": cache.table[:1]})),
                ("seqlens_k[1] must be at least 0 and at most 80, the tokens of k, got 81",
                 lambda: self.run_cache(cache, q, {"seqlens_k": [3, 81]})),
                ("max_seqlen_k must be at least 0 and at most 80, which page_table has room for, "
                 "got 81", lambda: self.run_cache(cache, q, {"max_seqlen_k": 81})),
                ("k has 7 pages and v 6; the two must be equal",
                 lambda: tessera.attention(q, cache.k[:7], cache.v[:6], page_table=cache.table)),
                ("v must have 4 dimensions, or 5 in runs of 16 bytes, got 0",
                 lambda: tessera.attention(q, cache.k, numpy.float32(1), page_table=cache.table)),
                ("k has 5 dimensions and v 4; the two must be equal",
                 lambda: tessera.attention(q, runs[0], cache.v, page_table=cache.table)),
                ("layout must be one of bshd, bhsd, got 'x'",
                 lambda: self.run_cache(cache, q, {}, layout="x")),
                ("page_starts must have 1 dimension, got 2",
                 lambda: tessera.attention(q, cache.k, cache.v, page_table=cache.list,
                                           page_starts=[[0, 3, 7]])),
                ("page_table must hold whole numbers, got the type float64",
                 lambda: self.run_cache(cache, q, {"page_table": [[0.5], [1.5]]})),
        ):
            with self.subTest(sentence):
                self.assert_refused(re.escape("attention: " + sentence), call)

    def test_problems_of_caches(self):
        problem = tessera.attention_problem(
            batch=2, heads=4, heads_kv=2, seqlen_q=1, seqlen_k=60, hdim=16, layout="bhsd",
            pages="table", page_size=16)
        shapes = {operand.name: (operand.shape, operand.strides) for operand in problem.operands}
        self.assertEqual(shapes["k"], ((8, 2, 16, 16), (512, 256, 16, 1)))
        self.assertEqual(shapes["page_table"], ((2, 4), (4, 1)))
