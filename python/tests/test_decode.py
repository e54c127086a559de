"""Decoding over caches, contiguous and in pages, and the cache that gives out its pages, against
their definition in fp64."""
import re

import ml_dtypes
import numpy

import tessera
from support import SEED
from test_append import turned
from test_attention import Attended, Expected, heads_first
from test_paged_attention import Cache

TYPES = ("float32", "float16", ml_dtypes.bfloat16)


def tables(random, positions, pairs):
    angles = random.uniform(0, 6.3, (positions, pairs))
    return numpy.cos(angles).astype("float32"), numpy.sin(angles).astype("float32")


class Decode(Attended):
    def test_contiguous_caches(self):
        for layout in ("bshd", "bhsd"):
            for tokens in (1, 3):
                q, k, v = self.tensors(2, tokens, 20, dtype=TYPES[self.pick(0, 3)])
                lengths = [self.pick(tokens, 21) for _ in range(2)]
                given = [heads_first(x, "bshd") if layout == "bhsd" else x for x in (q, k, v)]
                out, lse = tessera.decode(*given, lengths, layout=layout, return_lse=True)
                for b, n in enumerate(lengths):
                    expected = Expected(*(x.swapaxes(0, 1) for x in (q[b], k[b, :n], v[b, :n])),
                                        mask="bottom_right", dtype=q.dtype)
                    self.near(heads_first(out[b], layout), lse[b], expected)
        q, k, v = self.tensors(2, 1, 20)
        self.assertTrue((tessera.decode(q, k, v) == tessera.attention(q, k, v)).all())

    def test_new_keys_are_appended_and_attended(self):
        cos, sin = tables(self.random, 64, 8)
        for is_paged in (False, True):
            lengths = [30, 4, 17]
            cache = Cache(self, lengths, 8)
            before = [n - 2 for n in lengths]
            q, k_new, v_new = (self.draw(3, 2, n, d) for n, d in ((4, 16), (2, 16), (2, 24)))
            kept = q.copy()
            how = {"page_table": cache.table, "page_starts": None} if is_paged else {}
            k, v = cache.k, cache.v
            if not is_paged:
                k, v = (numpy.zeros((3, 32, 2, n), "float32") for n in (16, 24))
                for b, n in enumerate(lengths):
                    for to, old in zip((k, v), cache.sequence(b)):
                        to[b, :n] = old.swapaxes(0, 1)
            out = tessera.decode(q, k, v, before, k_new=k_new, v_new=v_new, cos=cos, sin=sin,
                                 rotary="half", **how)
            self.assertTrue((q == kept).all())
            for b, n in enumerate(lengths):
                places = numpy.arange(n - 2, n)
                keys, values = cache.sequence(b)
                keys, values = keys.astype("float64"), values.copy()
                keys[:, -2:] = turned(k_new[b], places, cos, sin, "half").swapaxes(0, 1)
                values[:, -2:] = v_new[b].swapaxes(0, 1)
                expected = Expected(turned(q[b], places, cos, sin, "half").swapaxes(0, 1), keys,
                                    values, mask="bottom_right")
                expected.bound = 2 * expected.bound + 1e-6  # turned in fp32
                self.near(out[b].swapaxes(0, 1), None, expected)

    def test_new_keys_take_one_launch(self):
        dispatcher = tessera.Dispatcher()
        k, v = (numpy.zeros((2, 40, 2, 16), "float32") for _ in range(2))
        q, k_new, v_new = (self.draw(2, 3, n, 16) for n in (4, 2, 2))
        cos, sin = tables(self.random, 20, 8)  # fewer rows than there is room
        out, lse = tessera.decode(q, k, v, [4, 17], k_new=k_new, v_new=v_new, cos=cos, sin=sin,
                                  rotary="half", seqlens_q=[2, 3], return_lse=True,
                                  dispatcher=dispatcher)
        ((plan, _),) = dispatcher._plans.values()
        self.assertIn("fmha_extend_fp32_", plan.kernel)
        self.assertTrue((k[0, 6:] == 0).all() and (k[0, 4:6] != 0).all())
        self.assertTrue((v[1, 17:20] == v_new[1]).all())
        self.assertTrue((out[0, 2] == 0).all() and (lse[0, :, 2] == -numpy.inf).all())
        self.assert_refused(re.escape(
            "decode: seqlens_k[1] must be at least 0 and at most 17, because 3 new tokens need "
            "places below 20, got 18"), tessera.decode, q, k, v, [4, 18], k_new=k_new, v_new=v_new,
            cos=cos, sin=sin, rotary="half")

    def test_caches_of_eight_bits(self):
        dtype = ml_dtypes.float8_e4m3fn
        for is_each in (True, False):
            k, v = (numpy.zeros((2, 32, 2, n), dtype) for n in (16, 24))
            factors = [numpy.ones((2, 2, 32), "float32") if is_each else 0.02 for _ in range(2)]
            scales = dict(zip(("descale_k", "descale_v"), factors))
            tessera.append_kv(k, v, self.draw(2, 20, 2, 16), self.draw(2, 20, 2, 24), [0, 5],
                              **scales)
            q, k_new, v_new = self.draw(2, 1, 4, 16), self.draw(2, 1, 2, 16), self.draw(2, 1, 2, 24)
            copies = [x.copy() for x in (k, v)]
            own = {name: x.copy() if is_each else x for name, x in scales.items()}
            tessera.append_kv(*copies, k_new, v_new, [20, 25], **own)
            wanted = tessera.attention(q, *copies, seqlens_k=[21, 26], **own)
            out = tessera.decode(q, k, v, [20, 25], k_new=k_new, v_new=v_new, **scales)
            self.assertTrue((out == wanted).all(), f"seed {SEED}")
            self.assertTrue((k.view("uint8") == copies[0].view("uint8")).all())
            if is_each:
                self.assertTrue((factors[0] == own["descale_k"]).all())

    def test_what_does_not_fit_is_refused(self):
        q, k, v = self.tensors(2, 1, 20)
        new = k[:, :1]
        for sentence, arrays, how in (
                ("decode: k_new is given without v_new", (q, k, v, [3, 4]), {"k_new": new}),
                ("decode: rotary='half' turns new keys; give k_new and v_new", (q, k, v),
                 {"rotary": "half"}),
                ("decode: k_new needs seqlens_k, how many keys the cache has before it", (q, k, v),
                 {"k_new": new, "v_new": new}),
                ("decode: q has 1 tokens and k_new 2; the two must be equal", (q, k, v, [3, 4]),
                 {"k_new": k[:, :2], "v_new": new}),
                ("decode: max_seqlen_k is for keys in pages, which need page_table",
                 (q, k, v, [3, 4]), {"k_new": new, "v_new": new, "max_seqlen_k": 9}),
                ("decode: q must have 4 dimensions, got 3; attention() takes packed tokens",
                 (q[0], k, v), {})):
            self.assert_refused(re.escape(sentence), tessera.decode, *arrays, **how)


class Sequences(Attended):
    def test_sequences_grow_and_go(self):
        """Ten steps of sequences that come, grow by any numbers of tokens, shrink and go."""
        for dtype in TYPES[:2]:
            cache = tessera.KvCache(pages=12, page_size=4, heads_kv=2, hdim=16, hdim_v=8, layers=2,
                                    dtype=dtype)
            held = {}
            for turn in range(10):
                with self.subTest(turn=turn, dtype=dtype, seed=SEED):
                    self.step(cache, held, dtype, self.pick(0, 2))
            for number in list(held):
                cache.free(number)
            self.assertEqual(cache.free_pages, 12)

    def step(self, cache, held, dtype, layer):
        while len(held) < 3:
            held[cache.add()] = [numpy.zeros((2, 0, n)) for n in (16, 8)]
        rows = list(held)[:self.pick(1, 4)]
        counts = [self.pick(0, 4) for _ in rows]
        step = cache.step(rows, counts)
        most = max(counts)
        new = [self.draw(len(rows), most, 2, n, dtype=dtype) for n in (16, 8)]
        q = self.draw(len(rows), most, 4, 16, dtype=dtype)
        for each in range(2):
            self.assertIsNone(step.append(each, *new))
        out, lse = step.attend(layer, q, return_lse=True)
        for i, (row, count) in enumerate(zip(rows, counts)):
            held[row] = [numpy.concatenate([old, x[i, :count].swapaxes(0, 1)], 1)
                         for old, x in zip(held[row], new)]
            self.assertEqual(cache.length(row), held[row][0].shape[1])
            expected = Expected(q[i, :count].swapaxes(0, 1), *held[row], mask="bottom_right",
                                dtype=numpy.dtype(dtype))
            self.near(out[i, :count].swapaxes(0, 1), lse[i, :, :count], expected)
        pages = [page for row in held for page in cache.pages_of(row)]
        self.assertEqual(len(set(pages)), len(pages))
        self.assertEqual(cache.free_pages + len(pages), 12)
        last = rows[-1]
        if cache.length(last) > 8:
            cache.free(last)
            del held[last]
        elif cache.length(last) > 2:
            cache.truncate(last, 2)
            held[last] = [x[:, :2] for x in held[last]]

    def test_caches_of_eight_bits(self):
        """Two steps, beside the same caches without steps: the same bits. What they hold is near
        to keys and values of 16 bits."""
        for dtype in ("float8_e4m3fn", "float8_e5m2"):
            for given in (None, 0.02):
                with self.subTest(dtype=dtype, given=given, seed=SEED):
                    self.eight_bits(dtype, given)

    def eight_bits(self, dtype, given):
        how = {"pages": 5, "page_size": 4, "heads_kv": 2, "hdim": 16, "layers": 2}
        cache = tessera.KvCache(dtype=dtype, descale_k=given, descale_v=given, **how)
        wide = tessera.KvCache(dtype="float16", **how)
        rows = [cache.add(), cache.add()]
        self.assertEqual([wide.add(), wide.add()], rows)
        for tokens in (6, 2):
            new = [self.draw(2, tokens, 2, 16, dtype="float16") for _ in range(2)]
            q = self.draw(2, tokens, 4, 16, dtype="float16")
            step, other = cache.step(rows, tokens), wide.step(rows, tokens)
            for each in range(2):
                step.append(each, *new)
                other.append(each, *new)
            out = step.attend(1, q)
            descale_k, descale_v = cache.descales[1]
            same = tessera.attention(q, cache.keys[1], cache.values[1], mask="bottom_right",
                                     page_table=step.page_table, seqlens_q=step.queries,
                                     seqlens_k=step.lengths, descale_k=descale_k,
                                     descale_v=descale_v)
            self.assertEqual(out.tobytes(), same.tobytes())
            error = abs(out.astype("float32") - other.attend(1, q).astype("float32")).max()
            self.assertGreater(error, 0)
            self.assertLess(error, 1.5)
        if given is None:
            for factors in cache.descales[0]:
                self.assertEqual(factors.shape, (5, 2, 4))
                self.assertTrue((factors[cache.pages_of(rows[0])] > 0).all())
                self.assertEqual(numpy.count_nonzero(factors), 2 * 2 * 8)

    def test_factors_of_a_cache_are_given_in_pairs_and_for_eight_bits(self):
        how = {"pages": 1, "heads_kv": 1, "hdim": 8}
        self.assert_refused("KvCache: descale_k and descale_v are for a cache of 8 bits, got "
                            "float16", lambda: tessera.KvCache(dtype="float16", descale_k=1,
                                                               descale_v=1, **how))
        self.assert_refused("KvCache: descale_k and descale_v must be given together",
                            lambda: tessera.KvCache(dtype="float8_e5m2", descale_k=1, **how))

    def test_what_does_not_fit_is_refused_and_changes_nothing(self):
        cache = tessera.KvCache(pages=3, page_size=4, heads_kv=1, hdim=8)
        one, other = cache.add(), cache.add()
        cache.step([one], 7)

        def refused(sentence, call, *arguments):
            self.assert_refused(re.escape(f"KvCache: {sentence}"), call, *arguments)
        refused("the new tokens need 2 pages, but 1 are free; free() sequences, or make a cache of "
                "more pages", cache.step, [one, other], [2, 3])
        self.assertEqual((cache.length(one), cache.length(other), cache.free_pages), (7, 0, 1))
        refused("there is no sequence 9; add() makes one", cache.step, [9])
        refused("there is no sequence 9; add() makes one", cache.free, 9)
        refused(f"a step has each sequence once, got [{one}, {one}]", cache.step, [one, one])
        refused("tokens must hold 2 numbers, one for each sequence, got 1", cache.step,
                [one, other], [1])
        refused("tokens must be at least 0, got -1", cache.step, [one], -1)
        refused("length must be at least 0 and at most 7, which the sequence has, got 8",
                cache.truncate, one, 8)
        refused("pages must be at least 1, got 0",
                lambda: tessera.KvCache(pages=0, heads_kv=1, hdim=8))
        refused("dtype must be one of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, got "
                "int8",
                lambda: tessera.KvCache(pages=1, heads_kv=1, hdim=8, dtype="int8"))
        refused("page_size must be a whole number, got 2.5",
                lambda: tessera.KvCache(pages=1, heads_kv=1, hdim=8, page_size=2.5))

    def cache_of_two(self, like=None):
        """A cache whose first page is one text's; the other has a step of 12 tokens, 3 pages."""
        cache = tessera.KvCache(pages=6, page_size=4, heads_kv=1, hdim=8, layers=2, like=like)
        one, other = cache.add(), cache.add()
        first = self.draw(1, 4, 1, 8)
        cache.step([one], 4).append(0, first, first)
        return cache, (one, other), cache.step([other], 12), cache.keys[0][:1].copy()

    def test_a_step_takes_its_own_tokens_alone(self):
        cache, _, step, kept = self.cache_of_two()
        new = {count: self.draw(1, count, 1, 8) for count in (11, 12, 13)}
        shape = "KvCache: {} must have the shape (1, 12, heads, elements a head), the step's "
        shape += "sequences and tokens, got "
        for array, got in ((new[13], (1, 13, 1, 8)), (new[11], (1, 11, 1, 8)),
                           (self.draw(2, 12, 1, 8), (2, 12, 1, 8)), (new[12][0], (12, 1, 8))):
            for name, arrays in (("k_new", (array, new[12])), ("v_new", (new[12], array))):
                self.assert_refused(re.escape(shape.format(name) + str(got)), step.append, 0,
                                    *arrays)
            self.assert_refused(re.escape(shape.format("q") + str(got)), step.attend, 0, array)
        self.assert_refused("k has 1 heads and k_new 2", step.append, 0, self.draw(1, 12, 2, 8),
                            new[12])
        self.assertEqual(cache.keys[0][:1].tobytes(), kept.tobytes())
        self.assertFalse(cache.keys[0][1:].any())
        step.append(0, new[12], new[12])
        self.assertEqual(cache.keys[0][:1].tobytes(), kept.tobytes())

    def test_a_step_knows_its_layers_and_options(self):
        _, _, step, _ = self.cache_of_two()
        new = self.draw(1, 12, 1, 8)
        for layer in (-1, 2):
            text = f"KvCache: layer must be at least 0 and below 2, got {layer}"
            self.assert_refused(text, step.append, layer, new, new)
            self.assert_refused(text, step.attend, layer, new)
        for option in ("page_table", "layout", "seqlens_q", "seqlens_k"):
            text = f"KvCache: a step takes no option '{option}'; it takes "
            for call, arrays in ((step.append, (new, new)), (step.attend, (new,))):
                self.assert_refused(text, call, 0, *arrays, code="not_found", **{option: None})

    def test_a_step_ends_with_its_sequences(self):
        new = self.draw(1, 12, 1, 8)
        for end, word in ((lambda cache, row: cache.free(row), "freed"),
                          (lambda cache, row: cache.truncate(row, 3), "made shorter")):
            cache, (_, other), step, _ = self.cache_of_two()
            cache.truncate(other, 12)
            step.append(0, new, new)
            end(cache, other)
            text = f"KvCache: sequence {other} was {word} after the step; make a new step"
            self.assert_refused(text, step.append, 0, new, new)
            self.assert_refused(text, step.attend, 0, new)
