"""Appending to a cache against its definition in fp64."""
import re
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROUNDING, SEED, Case, wide
from test_attention import heads_first
from test_paged_attention import Cache

WIDE_TYPES = ("float32", "float16", ml_dtypes.bfloat16)


def turned(x, positions, cos, sin, rotary):
    """x (tokens, heads, hdim) in fp64, each token turned by its position."""
    x = wide(x).copy()
    if rotary is None:
        return x
    n = 2 * cos.shape[1]
    c, s = (wide(table)[positions][:, None] for table in (cos, sin))
    pairs = (slice(0, n // 2), slice(n // 2, n)) if rotary == "half" else \
        (slice(0, n, 2), slice(1, n, 2))
    first, second = (x[..., part].copy() for part in pairs)
    x[..., pairs[0]], x[..., pairs[1]] = first * c - second * s, second * c + first * s
    return x


class Append(Case):
    def setUp(self):
        self.random = numpy.random.default_rng(SEED)

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def tables(self, positions, pairs):
        angles = self.random.uniform(0, 6.3, (positions, pairs))
        return numpy.cos(angles).astype("float32"), numpy.sin(angles).astype("float32")

    def assert_turned(self, got, want, dtype):
        error = abs(wide(got) - want)
        bound = (ROUNDING[numpy.dtype(dtype).name] + 2.0**-21) * (abs(want) + 1)
        self.assertTrue((error <= bound).all(), f"seed {SEED}: {error.max(initial=0)}")

    def test_random_sequences(self):
        for turn in range(36):
            dtype = WIDE_TYPES[turn % 3]
            rotary = (None, "half", "interleaved")[turn // 3 % 3]
            packed = turn % 2 == 1
            self.check(dtype, rotary, packed, ("bshd", "bhsd")[turn // 9 % 2 if not packed else 0])

    def check(self, dtype, rotary, packed, layout):
        integer = lambda low, high: int(self.random.integers(low, high + 1))  # noqa: E731
        batch, heads_kv, room = integer(1, 3), integer(1, 3), integer(8, 30)
        heads, hdim, hdim_v = heads_kv * integer(1, 3), 2 * integer(1, 20), integer(1, 40)
        counts = [integer(0, 4) for _ in range(batch)]
        before = [integer(0, room - count) for count in counts]
        cos, sin = self.tables(room, integer(1, hdim // 2)) if rotary else (None, None)
        tokens = sum(counts) if packed else 4
        lead = (tokens,) if packed else (batch, tokens)
        k_new, v_new = (self.draw(*lead, heads_kv, n, dtype=dtype) for n in (hdim, hdim_v))
        q = self.draw(*lead, heads, hdim, dtype=dtype) if rotary else None
        caches = [self.draw(batch, room, heads_kv, n, dtype=dtype) for n in (hdim, hdim_v)]
        want = [wide(cache).copy() for cache in caches]
        want_q = numpy.zeros((*lead, heads, hdim))
        sums = numpy.cumsum([0] + counts)
        for b, count in enumerate(counts):
            part = slice(sums[b], sums[b + 1]) if packed else (b, slice(0, count))
            positions = before[b] + numpy.arange(count)
            want[0][b, positions] = turned(k_new[part], positions, cos, sin, rotary)
            want[1][b, positions] = wide(v_new[part])
            if q is not None:
                want_q[part] = turned(q[part], positions, cos, sin, rotary)

        def laid(x):
            return x if x is None or layout == "bshd" else x.swapaxes(1, 2)
        out = tessera.append_kv(*(laid(x) for x in (*caches, k_new, v_new)), before, q=laid(q),
                                cos=cos, sin=sin, rotary=rotary, layout=layout,
                                seqlens_q=sums if packed else counts)
        for cache, expected in zip(caches, want):
            self.assert_turned(cache, expected, dtype)
        self.assertEqual(out is None, q is None)
        if q is not None:
            self.assert_turned(laid(out), want_q, dtype)

    def test_caches_of_eight_bits(self):
        dtype = ml_dtypes.float8_e4m3fn
        most = float(ml_dtypes.finfo(dtype).max)
        cos, sin = self.tables(20, 8)
        k_new, v_new = self.draw(2, 3, 2, 16, dtype="float16"), self.draw(2, 3, 2, 24,
                                                                          dtype="float16")
        heads = self.random.uniform(0.01, 0.02, 2).astype("float32")
        for given in (None, 0.01, heads, "tokens"):
            with self.subTest(given=str(given), seed=SEED):
                k, v = numpy.zeros((2, 20, 2, 16), dtype), numpy.zeros((2, 20, 2, 24), dtype)
                factors = [given, given]
                if isinstance(given, str):
                    factors = [numpy.full((2, 2, 20), 7, "float32") for _ in range(2)]
                tessera.append_kv(k, v, k_new, v_new, [4, 9], cos=cos, sin=sin, rotary="half",
                                  descale_k=factors[0], descale_v=factors[1])
                for b, first in enumerate((4, 9)):
                    places = slice(first, first + 3)
                    new = (turned(k_new[b], first + numpy.arange(3), cos, sin, "half"),
                           wide(v_new[b]))
                    for x, cache, factor in zip(new, (k, v), factors):
                        by = 1 if factor is None else numpy.asarray(factor)
                        if isinstance(given, str):
                            by = factor[b, :, places].T[..., None]
                            largest = abs(x).max(-1, keepdims=True) / most
                            self.assertTrue(numpy.allclose(by, largest, rtol=1e-3))
                        elif given is heads:
                            by = by[:, None]
                        want = numpy.clip(x / by, -most, most)
                        error = abs(wide(cache[b, places]) - want)
                        self.assertTrue((error <= 2.0**-4 * abs(want) * 1.01 + 2.0**-9).all())
                        self.assertTrue((wide(cache[b, :first]) == 0).all())
                    if isinstance(given, str):
                        self.assertTrue((factors[0][b, :, :first] == 7).all())
        self.assert_refused("descale_k and descale_v are for caches of float8 and new keys of "
                            "another type, got float16", tessera.append_kv,
                            k.astype("float16"), v.astype("float16"), k_new, v_new, [4, 9],
                            descale_k=1, descale_v=1)

    def test_in_place_and_equal_lengths(self):
        cos, sin = self.tables(12, 4)
        k, v = self.draw(2, 12, 1, 8), self.draw(2, 12, 1, 8)
        k_new, v_new, q = self.draw(2, 3, 1, 8), self.draw(2, 3, 1, 8), self.draw(2, 3, 4, 8)
        want = numpy.stack([turned(q[b], n + numpy.arange(3), cos, sin, "half")
                            for b, n in enumerate((9, 2))])
        before = k.copy()
        out = tessera.append_kv(k, v, k_new, v_new, numpy.array([9, 2]), q=q, out=q, cos=cos,
                                sin=sin, rotary="half")
        self.assertIs(out, q)
        self.assert_turned(out, want, "float32")
        self.assertTrue((k[0, :9] == before[0, :9]).all() and (k[1, 5:] == before[1, 5:]).all())
        self.assertTrue((v[0, 9:] == v_new[0]).all())

    def test_pages_get_what_a_contiguous_cache_gets(self):
        cos, sin = self.tables(40, 4)
        for turn, layout in enumerate(("bshd", "bhsd", "runs")):
            for is_list in (False, True):
                dtype = WIDE_TYPES[(turn + is_list) % 3]
                with self.subTest(layout=layout, is_list=is_list, dtype=dtype, seed=SEED):
                    self.check_pages(cos, sin, dtype, layout, is_list)

    def check_pages(self, cos, sin, dtype, layout, is_list):
        lengths, counts = [37, 8, 20], [3, 4, 1]
        cache = Cache(self, lengths, 8, dtype=dtype, layout=layout)
        before = [length - count for length, count in zip(lengths, counts)]
        new = [self.draw(3, 4, 2, n, dtype=dtype) for n in (16, 24)]
        flat = [numpy.zeros((3, 40, 2, n), dtype) for n in (16, 24)]
        for b in range(3):
            for to, old in zip(flat, cache.sequence(b)):
                to[b, :lengths[b]] = old.swapaxes(0, 1)
        how = {"cos": cos, "sin": sin, "rotary": "half", "seqlens_q": counts}
        tessera.append_kv(*flat, *new, before, **how)
        if is_list:
            how.update(page_table=cache.list, page_starts=cache.starts)
        else:
            how["page_table"] = cache.table
        k, v = cache.arrays()
        order = "bhsd" if layout == "bhsd" else "bshd"
        laid = [numpy.ascontiguousarray(heads_first(x, "bshd")) if order == "bhsd" else x
                for x in new]
        tessera.append_kv(k, v, *laid, before, layout=order, **how)
        cache.take(k, v)
        for b in range(3):
            for to, now in zip(flat, cache.sequence(b)):
                self.assertTrue((to[b, :lengths[b]] == now.swapaxes(0, 1)).all())

    def test_a_bad_page_is_refused_and_nothing_written(self):
        cache = Cache(self, [20, 9], 8)
        new = self.draw(2, 1, 2, 16), self.draw(2, 1, 2, 24)
        before = cache.k.copy()
        cache.table[1, 1] = 9000
        self.assert_refused(
            re.escape(f"append_kv: page_table[1, 1] must be from 0 to {len(cache.k) - 1}, got "
                      "9000"), tessera.append_kv, cache.k, cache.v, *new, [19, 8],
            page_table=cache.table)
        self.assertTrue((cache.k == before).all())
        self.assert_refused(
            re.escape("append_kv: seqlens_k[0] must be at least 0 and at most 23, because 1 new "
                      "tokens need places below 24, got 24"), tessera.append_kv, cache.k, cache.v,
            *new, [24, 8], page_table=cache.list[:5], page_starts=cache.starts)
        self.assert_refused(
            re.escape("append_kv: check_pages is for keys in pages, which need page_table"),
            tessera.append_kv, cache.k, cache.v, *new, [1, 1], check_pages=True)

    def test_refusals(self):
        cos, sin = self.tables(6, 4)
        k, v, new = self.draw(2, 6, 2, 8), self.draw(2, 6, 2, 8), self.draw(2, 3, 2, 8)

        def refused(sentence, *arrays, **options):
            self.assert_refused(re.escape(sentence), tessera.append_kv, *arrays, **options)
        refused("append_kv: seqlens_k[1] must be at least 0 and at most 3, because 3 new tokens "
                "need places below 6, got 4", k, v, new, new, [0, 4])
        refused("append_kv: seqlens_k must hold 2 numbers, got 3", k, v, new, new, [0, 1, 2])
        refused("append_kv: rotary='half' needs sin", k, v, new, new, [0, 1], rotary="half",
                cos=cos)
        refused("append_kv: rotary=None has no cos", k, v, new, new, [0, 1], cos=cos, sin=sin)
        refused("append_kv: rotary must be None or one of interleaved, half, got 'neox'", k, v,
                new, new, [0, 1], rotary="neox", cos=cos, sin=sin)
        refused("append_kv: q is for a rotary embedding", k, v, new, new, [0, 1], q=new)
        refused("append_kv: k has 2 heads and k_new 1", k, v, new[:, :, :1], new, [0, 1])
        refused("append_kv: k has 8 elements a head and k_new 6", k, v, new[..., :6], new, [0, 1])
        refused("append_kv: k has the type float32 and v_new float16", k, v, new,
                new.astype("float16"), [0, 1])
        refused("append_kv: k_new has 3 dimensions, which are packed tokens", k, v, new[0], new[0],
                [0, 1])
        refused("rotary_dim must be at most 6 (hdim), got 8", k[..., :6], v, new[..., :6], new,
                [0, 1], rotary="half", cos=cos, sin=sin)
        refused("fmha: k must not overlap v", k, k, new, new, [0, 1])


if __name__ == "__main__":
    unittest.main()
