"""Attention of tessera.torch against PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import DEVICES, SEED, Case, wide

import torch
import torch.nn.functional as functional

import tessera.torch
from tessera.torch import scaled_dot_product_attention

TYPES = (torch.float32, torch.float16, torch.bfloat16)
FP32 = 2.0**-24  # half an ulp


def setUpModule():
    print(f"test_torch_attention: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def heads_first(tensor, layout="bshd"):
    return tensor.transpose(-2, -3) if layout == "bshd" else tensor


def repeated(tensor, heads):
    """A head of keys for each head of queries."""
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def bound_of(q, k, v, scale, bias, dtype):
    """How far sums in fp32 may be from fp64. Of (..., heads, tokens, hdim): a rounding for each
    product of a score and some for its exponential, which are a part of each weight, and one of
    the weights and of the result in a narrow type."""
    q, k, v = wide(q), wide(k), wide(v)
    if q.dim() > 2:
        k, v = repeated(k, q.shape[-3]), repeated(v, q.shape[-3])
    scale = q.shape[-1]**-0.5 if scale is None else scale
    sizes = (abs(scale) * q.abs() @ k.abs().mT).amax() * (q.shape[-1] + 32)
    if bias is not None and bias.dtype != torch.bool:
        sizes = sizes + 12 * wide(bias)[bias.isfinite()].abs().amax()
    lost = torch.expm1(2 * FP32 * (sizes + 4 * k.shape[-2] + 64))
    return (lost + (0 if dtype == torch.float32 else 1.5 * torch.finfo(dtype).eps) +
            FP32) * v.abs().amax() + 1e-30


class Attended(Case):
    def draw(self, *shape, device="cpu", dtype=torch.float32):
        return torch.randn(*shape, device=device).to(dtype)

    def assert_sdpa(self, q, k, v, attn_mask=None, **how):
        """Twice: the second call finds its plan."""
        for _ in range(2):
            out = scaled_dot_product_attention(q, k, v, attn_mask, **how)
        is_bool = attn_mask is None or attn_mask.dtype == torch.bool
        expected = functional.scaled_dot_product_attention(
            wide(q), wide(k), wide(v), attn_mask if is_bool else wide(attn_mask), **how)
        self.assertEqual(out.dtype, q.dtype)
        self.assert_close(out, expected, bound_of(q, k, v, how.get("scale"), attn_mask, q.dtype),
                          f"{tuple(q.shape)} {tuple(k.shape)} {how} {q.dtype}")
        return out

    def tensors(self, batch=2, heads=4, queries=20, keys=30, hdim=32, heads_kv=None, hdim_v=None,
                **how):
        heads_kv = heads_kv or heads
        return (self.draw(batch, heads, queries, hdim, **how),
                self.draw(batch, heads_kv, keys, hdim, **how),
                self.draw(batch, heads_kv, keys, hdim_v or hdim, **how))


class ScaledDotProduct(Attended):
    def test_random_shapes(self):
        for device in DEVICES:
            for i in range(15):
                pick = self.random.randint
                heads_kv = pick(1, 3)
                heads, dtype = heads_kv * pick(1, 3), TYPES[i % 3]
                q, k, v = self.tensors(pick(1, 3), heads, pick(1, 70), pick(1, 90), 8 * pick(1, 16),
                                       heads_kv, 8 * pick(1, 16), device=device, dtype=dtype)
                how = {"enable_gqa": heads != heads_kv}
                if self.random.random() < 0.5:
                    how["scale"] = self.random.uniform(0.05, 0.5)
                mask, kind = None, pick(0, 3)
                if kind == 1:
                    how["is_causal"] = True
                if kind == 2:
                    mask = torch.rand(q.shape[0], 1, q.shape[2], k.shape[2], device=device) < 0.7
                    mask[..., 0] = True
                if kind == 3:
                    mask = self.draw(heads, q.shape[2], k.shape[2], device=device, dtype=dtype)
                with self.subTest(i=i, device=device, dtype=dtype, **how):
                    self.assert_sdpa(q, k, v, mask, **how)

    def test_masks(self):
        for device in DEVICES:
            q, k, v = self.tensors(device=device)
            for shape in ((2, 4, 20, 30), (2, 1, 20, 30), (2, 1, 1, 30), (4, 20, 30), (20, 30),
                          (20, 1)):
                self.assert_sdpa(q, k, v, self.draw(*shape, device=device))
                seen = torch.rand(*shape, device=device) < 0.5
                if shape[-1] > 1:
                    seen[..., 3] = True
                else:
                    seen[...] = True
                self.assert_sdpa(q, k, v, seen)
            for queries, keys in ((20, 30), (30, 20), (25, 25)):
                self.assert_sdpa(*self.tensors(queries=queries, keys=keys, device=device),
                                 is_causal=True)

    def test_rows_without_keys(self):
        q, k, v = self.tensors()
        seen = torch.ones(20, 30, dtype=torch.bool)
        seen[3] = False
        out = self.assert_sdpa(q, k, v, seen)
        self.assertTrue((out[:, :, 3] == 0).all())

    def test_dimensions(self):
        q, k, v = self.tensors(6)
        self.assert_sdpa(q[0, 0], k[0, 0], v[0, 0])
        self.assert_sdpa(q[0], k[0], v[0], self.draw(4, 20, 30))
        self.assert_sdpa(*[x.unflatten(0, (2, 3)) for x in (q, k, v)], self.draw(2, 1, 4, 20, 30))
        self.assert_sdpa(q, k[:1], v[:1])
        for q, k, v in ((q[:0], k[:0], v[:0]), (q[:, :, :0], k, v)):
            self.assertEqual(scaled_dot_product_attention(q, k, v).shape, q.shape)

    def test_strides(self):
        """Nothing is copied, and the result's heads and tokens lie as those of the query do."""
        both = self.draw(2, 25, 3, 4, 32)
        q, k, v = (x.transpose(1, 2) for x in both.unbind(2))
        out = self.assert_sdpa(q, k, v, is_causal=True)
        self.assertTrue(out.transpose(1, 2).is_contiguous())
        q, k, v = self.tensors()
        self.assert_sdpa(q[..., ::2], k[..., 1::2], v[:, :, :, ::4])
        self.assertTrue(self.assert_sdpa(q, k.expand(2, -1, -1, -1), v).is_contiguous())

    def test_operator(self):
        q, k, v = self.tensors(heads_kv=2, dtype=torch.bfloat16)
        more = (None, None, None, None, torch.tensor([3, 4]), None, None, "bhsd", "top_left",
                [5, 0], 1, 0.2, 0.0, None, None, 0, 0.25, True, True)
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(torch.ops.tessera.attention.default, (q, k, v, *more),
                              test_utils=tests)
        swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        torch.library.opcheck(torch.ops.tessera.attention.default, (*swapped, *more),
                              test_utils=tests)

    def test_compile(self):
        q, k, v = self.tensors()
        seen = torch.rand(20, 30) < 0.8

        def block(q, k, v, seen):
            return scaled_dot_product_attention(q * 2, k, v, seen) + 1

        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(q, k, v, seen), block(q, k, v, seen)))

    def test_compile_other_sizes(self):
        """Tokens and heads' lengths that change together, from the first call on and later."""
        def block(q, k):
            return scaled_dot_product_attention(q, k, k, enable_gqa=True) * 2

        for dynamic in (True, None):
            torch._dynamo.reset()
            compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            for heads, queries, keys, hdim in ((2, 5, 7, 8), (2, 9, 4, 16), (6, 1, 3, 24)):
                q = self.draw(2, heads, queries, hdim).requires_grad_()
                k = self.draw(2, heads // 2, keys, hdim)
                mine, same = compiled(q, k), block(q, k)
                self.assertTrue(torch.equal(mine, same))
                for one, other in zip(*(torch.autograd.grad(y.sum(), q) for y in (mine, same))):
                    self.assertTrue(torch.equal(one, other))

    def test_autocast(self):
        q, k, v = self.tensors()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = scaled_dot_product_attention(q, k, v, self.draw(20, 30))
        self.assertEqual(out.dtype, torch.bfloat16)


class Everything(Attended):
    """tessera.torch.attention(): what PyTorch's function has no words for."""

    def test_equals_numpy(self):
        for layout in ("bshd", "bhsd"):
            q, k, v = (heads_first(x, layout) for x in self.tensors(heads_kv=2))
            slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
            for how in ({}, {"mask": "bottom_right", "window": (7, 2), "sink": 3},
                        {"soft_cap": 5.0, "scale": 0.3}, {"slopes": slopes},
                        {"bias": self.draw(4, 20, 30)}):
                out, lse = tessera.torch.attention(q, k, v, layout=layout, return_lse=True, **how)
                same = {name: x.numpy() if isinstance(x, torch.Tensor) else x
                        for name, x in how.items()}
                mine = tessera.attention(q.numpy(), k.numpy(), v.numpy(), layout=layout,
                                         return_lse=True, **same)
                torch.testing.assert_close(out, torch.from_numpy(mine[0]))
                torch.testing.assert_close(lse, torch.from_numpy(mine[1]))

    def sequences(self, device):
        of_q, of_k = ([self.random.randint(0, 30) for _ in range(5)] for _ in range(2))
        sums = [torch.tensor([sum(lengths[:i]) for i in range(6)], device=device)
                for lengths in (of_q, of_k)]
        return sums[0], sums[1]

    def test_num_splits(self):
        """The number of parts changes the order of sums and nothing else."""
        q, k, v = self.draw(1, 1, 4, 64), self.draw(1, 4096, 2, 64), self.draw(1, 4096, 2, 64)
        outs = [tessera.torch.attention(q, k, v, num_splits=n) for n in (1, 1, 16)]
        self.assertTrue(torch.equal(outs[0], outs[1]))
        self.assertFalse(torch.equal(outs[0], outs[2]))
        torch.testing.assert_close(outs[0], outs[2], rtol=0, atol=1e-5)
        mine = tessera.attention(*(x.numpy() for x in (q, k, v)), num_splits=16)
        self.assertTrue((outs[2].numpy() == mine).all())

    def test_packed(self):
        for device in DEVICES:
            for dtype in TYPES:
                of_q, of_k = self.sequences(device)
                q = self.draw(int(of_q[-1]), 4, 32, device=device, dtype=dtype)
                k, v = (self.draw(int(of_k[-1]), 2, 32, device=device, dtype=dtype)
                        for _ in range(2))
                out, lse = tessera.torch.attention(q, k, v, seqlens_q=of_q, seqlens_k=of_k.int(),
                                                   return_lse=True)
                for a, b, c, d in zip(of_q, of_q[1:], of_k, of_k[1:]):
                    self.assert_sequence(out[a:b], lse[:, a:b], q[a:b], k[c:d], v[c:d])

    def assert_sequence(self, out, lse, q, k, v):
        q, k, v = (heads_first(x) for x in (q, k, v))
        if q.numel() == 0:
            return
        if k.numel() == 0:
            self.assertTrue((out == 0).all() and torch.isneginf(lse).all())
            return
        expected = functional.scaled_dot_product_attention(wide(q), wide(k), wide(v),
                                                           enable_gqa=True)
        self.assert_close(heads_first(out), expected, bound_of(q, k, v, None, None, q.dtype))
        scores = wide(q) @ repeated(wide(k), 4).mT * 32**-0.5
        self.assert_close(lse, scores.logsumexp(-1), 1e-4)

    def test_padded(self):
        for device in DEVICES:
            q, k, v = (heads_first(x) for x in self.tensors(4, heads_kv=2, device=device))
            of_k = torch.tensor([30, 0, 7, 19], device=device)
            of_q = torch.tensor([5, 20, 0, 11], device=device)
            for how in ({"seqlens_k": of_k}, {"seqlens_q": of_q},
                        {"seqlens_q": of_q, "seqlens_k": of_k, "skip_q": 6}):
                out, lse = tessera.torch.attention(q, k, v, return_lse=True, **how)
                for b in range(4):
                    n = int(how["seqlens_q"][b]) if "seqlens_q" in how else 20
                    n = 0 if n <= how.get("skip_q", 0) else n
                    keys = int(of_k[b]) if "seqlens_k" in how else 30
                    self.assert_sequence(out[b, :n], lse[b, :, :n], q[b, :n], k[b, :keys],
                                         v[b, :keys])
                    self.assertTrue((out[b, n:] == 0).all())
                    self.assertTrue(torch.isneginf(lse[b, :, n:]).all())

    def test_compile(self):
        q, k, v = (heads_first(x) for x in self.tensors())

        def block(q, k, v):
            return tessera.torch.attention(q, k, v, mask="top_left", window=(4, 0), return_lse=True)

        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        for mine, same in zip(compiled(q, k, v), block(q, k, v)):
            self.assertTrue(torch.equal(mine, same))


class Paged(Attended):
    def cache(self, lengths, page_size=8, device="cpu", dtype=torch.float32):
        """Keys and values in pages, their table, and the same behind each other."""
        counts = [-(-n // page_size) for n in lengths]
        order = torch.randperm(sum(counts) + 2)[:sum(counts)]
        k, v = (self.draw(sum(counts) + 2, page_size, 2, n, device=device, dtype=dtype)
                for n in (32, 24))
        table = torch.zeros(len(lengths), max(counts), dtype=torch.int64)
        for row, pages in zip(table, order.split(counts)):
            row[:len(pages)] = pages
        table = table.to(device)
        flat = [x[table].flatten(1, 2) for x in (k, v)]
        return k, v, table, flat

    def test_equals_what_lies_together(self):
        lengths = [30, 5, 17]
        for device in DEVICES:
            for dtype in TYPES:
                k, v, table, flat = self.cache(lengths, device=device, dtype=dtype)
                q = self.draw(3, 2, 4, 32, device=device, dtype=dtype)
                how = {"seqlens_k": torch.tensor(lengths, device=device), "return_lse": True,
                       "mask": "bottom_right"}
                wanted = tessera.torch.attention(q, *flat, **how)
                for index in (table, table.to(torch.int32)):
                    got = tessera.torch.attention(q, k, v, page_table=index, **how)
                    for mine, same in zip(got, wanted):
                        torch.testing.assert_close(mine, same, atol=0, rtol=2**-7)
                starts = torch.tensor([0, 4, 5, 8], device=device)
                pages = torch.cat([table[0], table[1, :1], table[2, :3]])
                got = tessera.torch.attention(q, k, v, page_table=pages, page_starts=starts, **how)
                self.assertTrue(torch.equal(got[0], tessera.torch.attention(
                    q, k, v, page_table=table, **how)[0]))

    def test_packed_queries_and_runs(self):
        k, v, table, _ = self.cache([30, 5, 17])
        q, sums = self.draw(6, 4, 32), torch.tensor([0, 1, 4, 6])
        how = {"seqlens_q": sums, "seqlens_k": torch.tensor([30, 5, 17]), "page_table": table}
        runs = (k.unflatten(-1, (-1, 4)).permute(0, 2, 3, 1, 4).contiguous(),
                v.unflatten(1, (-1, 4)).permute(0, 3, 1, 4, 2).contiguous())
        out = tessera.torch.attention(q, k, v, **how)
        self.assertTrue(torch.equal(out, tessera.torch.attention(q, *runs, **how)))
        more = [x.numpy() for x in (q, k, v)]
        mine = tessera.attention(*more, seqlens_q=sums.numpy(), seqlens_k=[30, 5, 17],
                                 page_table=table.numpy())
        self.assertTrue((out.numpy() == mine).all())

    def test_operator_and_compile(self):
        k, v, table, _ = self.cache([30, 5])
        q, lengths = self.draw(2, 1, 4, 32), torch.tensor([30, 5])
        arguments = (q, k, v, None, None, None, lengths, None, table, None, "bshd", None, None, 0,
                     None, 0.0, None, None, 0, 0.0, True, False)
        torch.library.opcheck(torch.ops.tessera.attention.default, arguments,
                              test_utils=("test_schema", "test_faketensor"))

        def block(q, k, v, table, lengths):
            return tessera.torch.attention(q * 2, k, v, page_table=table, seqlens_k=lengths) + 1

        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        given = (q, k, v, table, lengths)
        self.assertTrue(torch.equal(compiled(*given), block(*given)))

    def test_a_bad_page_is_refused(self):
        k, v, table, _ = self.cache([30, 5])
        q, lengths, most = self.draw(2, 1, 4, 32), torch.tensor([30, 5]), len(k) - 1
        table[0, 3] = 77
        for sentence, how in (
                (rf"page_table\[0, 3\] must be from 0 to {most}, got 77", {"page_table": table}),
                ("check_pages is for keys in pages, which need page_table", {"check_pages": True}),
                ("page_table must have the type int32 or int64, got float32",
                 {"page_table": table.float()})):
            with self.assertRaisesRegex(tessera.Error, f"attention: {sentence}"):
                tessera.torch.attention(q, k, v, seqlens_k=lengths, **how)

    def test_kv_cache(self):
        """A cache of PyTorch's tensors, filled in steps."""
        for device in DEVICES:
            cache = tessera.KvCache(pages=16, page_size=4, heads_kv=2, hdim=16,
                                    like=torch.empty(0, device=device))
            texts = [cache.add() for _ in range(2)]
            new = [self.draw(2, 9, 2, 16, device=device) for _ in range(2)]
            for first, last in ((0, 5), (5, 6), (6, 9)):
                step = cache.step(texts, last - first)
                step.append(0, *(x[:, first:last] for x in new))
            q = self.draw(2, 3, 4, 16, device=device)
            wanted = tessera.torch.attention(q, *new, mask="bottom_right")
            torch.testing.assert_close(step.attend(0, q), wanted)
            torch.testing.assert_close(tessera.torch.attention(
                q, cache.keys[0], cache.values[0], page_table=step.page_table,
                seqlens_k=step.lengths, mask="bottom_right"), wanted)
            self.assertEqual(step.page_table.device.type, device)

    def test_kv_cache_refuses_what_no_step_has(self):
        for device in DEVICES:
            cache = tessera.KvCache(pages=4, page_size=4, heads_kv=2, hdim=16,
                                    like=torch.empty(0, device=device))
            one, other = cache.add(), cache.add()
            cache.step([one], 4)
            step = cache.step([other], 4)
            new = self.draw(1, 5, 2, 16, device=device)
            with self.assertRaisesRegex(tessera.Error, "k_new must have the shape .1, 4, heads"):
                step.append(0, new, new)
            with self.assertRaisesRegex(tessera.Error, "q must have the shape .1, 4, heads"):
                step.attend(0, new)
            cache.free(other)
            with self.assertRaisesRegex(tessera.Error, "was freed after the step"):
                step.append(0, new[:, :4], new[:, :4])
            self.assertFalse(cache.keys[0].any())


class Dropout(Attended):
    def test_equals_numpy(self):
        q, k, v = (heads_first(x) for x in self.tensors(heads_kv=2))
        for device in DEVICES:
            given = [x.to(device) for x in (q, k, v)]
            for seed, offset in ((5, 6), (torch.tensor([5, 6], device=device), 0)):
                how = {"dropout": 0.3, "return_lse": True, "return_random": True}
                out, lse, random = tessera.torch.attention(*given, seed=seed, offset=offset, **how)
                mine = tessera.attention(*[x.numpy() for x in (q, k, v)], seed=5, offset=6, **how)
                self.assertTrue((random.cpu().numpy() == mine[2]).all())
                torch.testing.assert_close(out.cpu(), torch.from_numpy(mine[0]))
                torch.testing.assert_close(lse.cpu(), torch.from_numpy(mine[1]))

    def test_generator(self):
        """As PyTorch's own dropout, it follows from torch.manual_seed()."""
        for device in DEVICES:
            q, k, v = self.tensors(device=device)
            for call in (lambda: scaled_dot_product_attention(q, k, v, dropout_p=0.5),
                         lambda: tessera.torch.attention(q, k, v, layout="bhsd", dropout=0.5)):
                seed = self.random.randint(0, 2**30)
                torch.manual_seed(seed)
                first, second = call(), call()
                self.assertFalse(torch.equal(first, second))
                torch.manual_seed(seed)
                self.assertTrue(torch.equal(call(), first))

    def test_scaled_dot_product(self):
        """The mean over masks is the result without dropout."""
        for device in DEVICES:
            q, k, v = self.tensors(1, 1, 1, device=device)
            many = scaled_dot_product_attention(q.expand(-1, -1, 4000, -1), k, v, dropout_p=0.3)
            plain = scaled_dot_product_attention(q, k, v)
            error = (many - plain).double()
            bound = 5 * error.square().sum(2).sqrt() / 4000
            self.assertTrue((error.mean(2).abs() <= bound).all())
            self.assertGreater(float(bound.min()), 1e-5)

    def test_compile(self):
        q, k, v = (heads_first(x) for x in self.tensors())

        def block(q, k, v, words):
            return tessera.torch.attention(q, k, v, dropout=0.5, seed=words, return_random=True)

        words = torch.tensor([1, 2])
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        for mine, same in zip(compiled(q, k, v, words), block(q, k, v, words)):
            self.assertTrue(torch.equal(mine, same))
        q, k, v = self.tensors()
        drop = torch.compile(lambda q: scaled_dot_product_attention(q, k, v, dropout_p=0.5),
                             fullgraph=True, backend="aot_eager")
        out = drop(q)
        self.assertEqual(out.shape, q.shape)
        self.assertFalse(torch.equal(drop(q), out))

    def test_refusals(self):
        q, k, v = self.tensors()
        for pattern, how in (("seed must be a whole number, got 1.5", {"seed": 1.5}),
                             ("seed must be a whole number, got None", {"offset": 3}),
                             ("the shape .2,. and the type int64 or uint64, got .3,. and int64",
                              {"seed": torch.tensor([1, 2, 3])}),
                             ("offset must be 0 where seed is an array, .*, got 1",
                              {"seed": torch.tensor([1, 2]), "offset": 1})):
            with self.assertRaisesRegex(tessera.Error, "^attention: .*" + pattern):
                tessera.torch.attention(q, k, v, layout="bhsd", dropout=0.5, **how)


class Refusals(Attended):
    def refused(self, pattern, function, *arguments, **named):
        with self.assertRaisesRegex(tessera.Error, pattern):
            function(*arguments, **named)

    def test_scaled_dot_product(self):
        q, k, v = self.tensors()
        sdpa = scaled_dot_product_attention
        self.refused("dropout_p must be at least 0 and below 1, got 1.0", sdpa, q, k, v,
                     dropout_p=1.0)
        self.refused("attn_mask and is_causal cannot both be given", sdpa, q, k, v,
                     torch.ones(20, 30, dtype=torch.bool), is_causal=True)
        self.refused("query has 4 heads and key 2; the two must be equal where enable_gqa is False",
                     sdpa, q, k[:, :2], v[:, :2])
        self.refused("query must have at least 2 dimensions, got 1", sdpa, q[0, 0, 0], k, v)
        self.refused("heads_kv must divide heads, got heads_kv=3 and heads=4", sdpa, q, k[:, :3],
                     v[:, :3], enable_gqa=True)
        self.refused("q has the type float32 and k float16; the two must be equal", sdpa, q,
                     k.half(), v)
        self.refused("q has the type float64", sdpa, q.double(), k, v)
        self.refused("scale must not be 0", sdpa, q, k, v, scale=0.0)

    def test_lengths(self):
        q, k, v = (heads_first(x) for x in self.tensors())
        call = tessera.torch.attention
        self.refused(r"^attention: seqlens_k\[1\] must be at least 0 and at most 30, .*, got 31",
                     call, q, k, v, seqlens_k=torch.tensor([1, 31]))
        self.refused("seqlens_q must hold 2 numbers, got 1", call, q, k, v,
                     seqlens_q=torch.tensor([1]))
        self.refused("seqlens_q must have the type int32 or int64, got float32", call, q, k, v,
                     seqlens_q=torch.tensor([1.0, 2.0]))
        self.refused("seqlens_k must be given beside the other one", call, q[0], k[0], v[0],
                     seqlens_q=torch.tensor([0, 20]))
        self.refused("seqlens_q ends with 19, but q has 20 tokens", call, q[0], k[0], v[0],
                     seqlens_q=torch.tensor([0, 19]), seqlens_k=torch.tensor([0, 30]))
        self.refused("max_seqlen_q must be at least 20, .*, got 19", call, q[0], k[0], v[0],
                     seqlens_q=torch.tensor([0, 20]), seqlens_k=torch.tensor([0, 30]),
                     max_seqlen_q=19)
        self.refused("max_seqlen_q is for packed tokens, .*; got 7", call, q, k, v, max_seqlen_q=7)
        self.refused("window must be a pair", call, q, k, v, mask="top_left", window=3)


if __name__ == "__main__":
    unittest.main()
