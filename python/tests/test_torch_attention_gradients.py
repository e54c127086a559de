"""Gradients of attention in tessera.torch against those of PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import math
import unittest
import warnings

from test_torch import DEVICES, SEED, Case

import torch
import torch.nn.functional as functional

import tessera
import tessera.torch
from tessera.torch import scaled_dot_product_attention

# Of the largest element of a gradient, or of 1 where that is less, as where sums cancel. Narrow
# types round the result, from which delta is made, and weights.
LIMITS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def setUpModule():
    print(f"test_torch_attention_gradients: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


def seen_keys(queries, keys, mask, window, sink):
    """Which keys the queries of a sequence see."""
    if mask is None:
        return torch.ones(queries, keys, dtype=torch.bool)
    left, right = (-1, 0) if window is None else window
    at = torch.arange(queries)[:, None] + (keys - queries if mask == "bottom_right" else 0)
    key = torch.arange(keys)
    is_right = key <= at + right if right >= 0 else torch.ones(queries, keys, dtype=torch.bool)
    return is_right & ((key >= at - left) | (key < sink)) if left >= 0 else is_right


def attended(q, k, v, *, mask=None, window=None, sink=0, bias=None, slopes=None, scale=None,
             soft_cap=0.0, kept=None):
    """Of (..., heads, tokens, hdim) in fp64. kept: what dropout multiplies weights with."""
    group = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(group, -3) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1]**-0.5 if scale is None else scale)
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    queries, keys = scores.shape[-2:]
    if bias is not None:
        scores = scores + bias
    if slopes is not None:
        far = (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)).abs()
        scores = scores - slopes.double()[:, None, None] * far
    seen = seen_keys(queries, keys, mask, window, sink)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), -1)
    weights = torch.where(seen.any(-1, keepdim=True), weights, 0.0)
    return (weights if kept is None else weights * kept) @ v


class Gradients(Case):
    def draw(self, *shape, dtype=torch.float32):
        return torch.randn(*shape).to(dtype)

    def leaves(self, tensors):
        return [x.detach().requires_grad_() for x in tensors]

    def assert_gradients(self, ours, theirs, tensors, dtype, hint="", device="cpu"):
        """Of two functions of the tensors, the second in fp64 on a CPU."""
        mine = self.leaves([x.to(device) for x in tensors])
        wide = self.leaves([x.double() for x in tensors])
        out, expected = ours(*mine), theirs(*wide)
        dout = self.draw(*out.shape, dtype=dtype)
        found = [x.cpu() for x in torch.autograd.grad(out, mine, dout.to(device))]
        right = torch.autograd.grad(expected, wide, dout.double())
        for at, (got, want, leaf) in enumerate(zip(found, right, mine)):
            self.assertEqual((got.shape, got.dtype), (leaf.shape, leaf.dtype))
            # With a single key the terms of k's gradient cancel. What is left are the roundings of
            # delta, one of each query.
            queries = mine[0].numel() * leaf.shape[-2] // max(leaf.numel(), 1) if at == 1 else 1
            most = max(float(want.abs().max()) if want.numel() else 0.0, queries**0.5 / 4, 1.0)
            error = float((got.double() - want).abs().max()) if want.numel() else 0.0
            # An element of a shared bias adds up the gradients of many scores, each rounded. Where
            # all keys of a query share it, they cancel, but for the rounding of the query's delta,
            # whose largest sum of many is several times the usual one.
            rows, added, part = mine[0].numel() // mine[0].shape[-1], 1.0, 8
            if at == 3:
                cancels = leaf.shape[-1] == 1
                added = rows * (1 if cancels else mine[1].shape[-2]) / max(leaf.numel(), 1)
                part = 1 / 4 if cancels else 8
            limit = LIMITS[dtype] * most * max(added ** 0.5 / part, 1.0)
            self.assertLessEqual(error, limit, f"gradient {at} of {hint}")
        return found


class ScaledDotProduct(Gradients):
    def test_random_shapes(self):
        for i in range(24):
            pick = self.random.randint
            heads_kv = pick(1, 3)
            heads, dtype = heads_kv * pick(1, 3), list(LIMITS)[i % 3]
            batch, queries, keys, hdim = pick(1, 3), pick(1, 90), pick(1, 250), 8 * pick(1, 12)
            tensors = [self.draw(batch, heads, queries, hdim, dtype=dtype),
                       self.draw(batch, heads_kv, keys, hdim, dtype=dtype),
                       self.draw(batch, heads_kv, keys, 8 * pick(1, 12), dtype=dtype)]
            how = {"enable_gqa": True, "is_causal": i % 4 == 1}
            device = DEVICES[i % len(DEVICES)]
            with self.subTest(i=i, seed=SEED, dtype=dtype, device=device):
                self.assert_gradients(
                    lambda q, k, v: scaled_dot_product_attention(q, k, v, **how),
                    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **how),
                    tensors, dtype, f"{[tuple(x.shape) for x in tensors]} {how}", device)

    def test_masks_have_gradients(self):
        """In the shape that they were given, added up over what they are broadcast to."""
        q, k, v = self.draw(2, 4, 20, 32), self.draw(2, 4, 30, 32), self.draw(2, 4, 30, 32)
        for shape in ((2, 4, 20, 30), (2, 1, 20, 30), (2, 1, 1, 30), (1, 4, 20, 30), (20, 30),
                      (4, 20, 1), (30,)):
            with self.subTest(shape=shape, seed=SEED):
                self.assert_gradients(
                    lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, mask),
                    lambda q, k, v, mask: functional.scaled_dot_product_attention(q, k, v, mask),
                    [q, k, v, self.draw(*shape)], torch.float32, shape, DEVICES[-1])
        self.assert_gradients(  # a tensor that repeats elements itself
            lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, mask.expand(2, 4, 20, 30)),
            lambda q, k, v, mask: functional.scaled_dot_product_attention(
                q, k, v, mask.expand(2, 4, 20, 30)),
            [q, k, v, self.draw(2, 1, 20, 30)], torch.float32, "expanded")

    def test_no_scores(self):
        """A mask that is broadcast over nothing has a gradient of 0. Here PyTorch fills new memory
        with NaN."""
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        for batch, queries, keys in ((0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)):
            for shape in ((1, 1), (queries, 1), (2, 1, keys)):
                tensors = [self.draw(batch, 2, queries, 8), self.draw(batch, 2, keys, 8),
                           self.draw(batch, 2, keys, 8), self.draw(*shape)]
                self.assert_gradients(scaled_dot_product_attention,
                                      lambda q, k, v, mask: attended(q, k, v, bias=mask), tensors,
                                      torch.float32, (batch, queries, keys, shape))

    def test_truth_values(self):
        q, k, v = self.draw(2, 4, 20, 32), self.draw(2, 4, 30, 32), self.draw(2, 4, 30, 32)
        mask = torch.rand(2, 1, 20, 30) < 0.6
        mask[..., 3] = True
        self.assert_gradients(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, mask),
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, mask), [q, k, v],
            torch.float32)

    def test_dimensions_and_strides(self):
        q, k, v = (self.draw(6, 4, 20, 32) for _ in range(3))
        both = functional.scaled_dot_product_attention
        for tensors in ([x[0, 0] for x in (q, k, v)], [x[0] for x in (q, k, v)],
                        [x.unflatten(0, (2, 3)) for x in (q, k, v)],
                        [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)],
                        [q[..., ::2], k[..., ::2], v], [q, k[:1], v[:1]], [q[:, :, :0], k, v]):
            self.assert_gradients(scaled_dot_product_attention, both, tensors, torch.float32,
                                  [tuple(x.shape) for x in tensors])

    def test_dropout(self):
        """With values that are a unit matrix the output says which weights were kept; the same seed
        keeps them again."""
        for i, p in enumerate((0.1, 0.5)):
            q, k = self.draw(2, 4, 20, 32), self.draw(2, 4, 24, 32)
            v, unit = self.draw(2, 4, 24, 16), torch.eye(24).expand(2, 4, 24, 24)
            how = {"dropout_p": p, "is_causal": i == 1}
            torch.manual_seed(SEED)
            weights = scaled_dot_product_attention(q, k, unit, **how)
            kept = max(1, round(256 * (1 - p)))
            factors = torch.where(weights > 0, 256 / kept, 0.0).double()

            def ours(q, k, v):
                torch.manual_seed(SEED)
                return scaled_dot_product_attention(q, k, v, **how)

            self.assert_gradients(
                ours, lambda q, k, v: attended(q, k, v, kept=factors,
                                               mask="top_left" if i == 1 else None),
                [q, k, v], torch.float32, how)

    def test_of_sums(self):
        """Whose gradient repeats one element."""
        tensors = [self.draw(2, 4, 20, 32) for _ in range(3)]
        mine, wide = self.leaves(tensors), self.leaves([x.double() for x in tensors])
        scaled_dot_product_attention(*mine).sum().backward()
        functional.scaled_dot_product_attention(*wide).sum().backward()
        for got, want in zip(mine, wide):
            self.assertLess(float((got.grad - want.grad).abs().max()), 1e-4)

    def test_one_input(self):
        for at in range(3):
            tensors = [self.draw(2, 4, 20, 32) for _ in range(3)]
            leaf = tensors[at].requires_grad_()
            out = scaled_dot_product_attention(*tensors)
            dout = self.draw(*out.shape)
            got, = torch.autograd.grad(out, leaf, dout)
            wide = [x.detach().double() for x in tensors]
            wide[at].requires_grad_()
            want, = torch.autograd.grad(functional.scaled_dot_product_attention(*wide), wide[at],
                                        dout.double())
            self.assertLess(float((got - want).abs().max()), 1e-4)


class Attention(Gradients):
    def check(self, heads=4, heads_kv=2, queries=40, keys=50, hdim=32, dtype=torch.float32,
              layout="bshd", bias=None, **how):
        shapes = [(2, heads, queries, hdim), (2, heads_kv, keys, hdim), (2, heads_kv, keys, 24)]
        tensors = [self.draw(*shape, dtype=dtype) for shape in shapes]
        turn = (lambda x: x.transpose(1, 2)) if layout == "bshd" else (lambda x: x)
        if bias is not None:
            tensors.append(bias)
        self.assert_gradients(
            lambda q, k, v, bias=None: turn(tessera.torch.attention(
                turn(q), turn(k), turn(v), bias=bias, layout=layout, **how)),
            lambda q, k, v, bias=None: attended(q, k, v, bias=bias, **how), tensors, dtype,
            f"{dtype} {layout} {how}")

    def test_features(self):
        for dtype in LIMITS:
            for how in ({}, {"mask": "top_left"}, {"mask": "bottom_right"}, {"scale": 0.3},
                        {"mask": "bottom_right", "window": (9, 3)},
                        {"mask": "top_left", "window": (6, 0), "sink": 2},
                        {"soft_cap": 1.5}, {"slopes": torch.rand(4)},
                        {"slopes": torch.rand(4), "mask": "bottom_right", "soft_cap": 3.0}):
                with self.subTest(dtype=dtype, seed=SEED, **how):
                    self.check(dtype=dtype, **how)
            self.check(dtype=dtype, layout="bhsd", mask="bottom_right", queries=70, keys=20)
            self.check(dtype=dtype, bias=self.draw(4, 40, 50, dtype=dtype), soft_cap=2.0)

    def test_slopes(self):
        """One for each head, for each head of each sequence, or repeated for all sequences."""
        shapes = [(2, 4, 20, 32), (2, 2, 30, 32), (2, 2, 30, 24)]

        def theirs(q, k, v, slopes, **how):
            slopes = slopes.expand(2, 4)
            return torch.stack([attended(q[i], k[i], v[i], slopes=slopes[i], **how)
                                for i in range(2)])
        for dtype in LIMITS:
            for slopes in (torch.rand(4), torch.rand(2, 4), torch.rand(1, 4)):
                for how in ({}, {"mask": "bottom_right", "soft_cap": 2.0}):
                    tensors = [*(self.draw(*shape, dtype=dtype) for shape in shapes), slopes / 8]
                    mine, wide = self.leaves(tensors), self.leaves([x.double() for x in tensors])
                    spread = mine[3].expand(2, 4) if slopes.shape[0] == 1 else mine[3]
                    out = tessera.torch.attention(*mine[:3], layout="bhsd", slopes=spread, **how)
                    dout = self.draw(*out.shape, dtype=dtype)
                    got, = torch.autograd.grad(out, mine[3:], dout)
                    want, = torch.autograd.grad(theirs(*wide, **how), wide[3:], dout.double())
                    most = max(float(want.abs().max()), 30.0)  # distances multiply roundings
                    self.assertEqual((got.shape, got.dtype), (slopes.shape, torch.float32))
                    self.assertLessEqual(float((got.double() - want).abs().max()),
                                         4 * LIMITS[dtype] * most, f"{dtype} {how}, {SEED}")

    def test_bias_of_another_type(self):
        self.check(dtype=torch.float32, bias=self.draw(2, 1, 40, 50))

    def test_dropout(self):
        """With the weights that the forward pass kept."""
        for p in (0.1, 0.6):
            tensors = [self.draw(2, 4, 30, 32) for _ in range(3)]
            how = {"dropout": p, "seed": 5, "offset": 3, "layout": "bhsd", "mask": "bottom_right"}
            _, random = tessera.torch.attention(*tensors, return_random=True, **how)
            kept = max(1, round(256 * (1 - p)))
            factors = torch.where(random < kept, 256 / kept, 0.0).double()
            self.assert_gradients(
                lambda q, k, v: tessera.torch.attention(q, k, v, **how),
                lambda q, k, v: attended(q, k, v, mask="bottom_right", kept=factors), tensors,
                torch.float32, p)

    def test_random_features_together(self):
        """Lengths, heads and every feature that has a gradient, drawn at random."""
        for i in range(30):
            pick, dtype = self.random.randint, list(LIMITS)[i % 3]
            heads_kv, keys = pick(1, 3), pick(1, 90)
            heads, queries, hdim = heads_kv * pick(1, 3), pick(1, 70), pick(1, 40)
            mask = self.random.choice((None, "top_left", "bottom_right"))
            how = {"mask": mask, "soft_cap": self.random.choice((0.0, 2.0))}
            if mask and pick(0, 1):
                how["window"] = (pick(0, 20), pick(0, 9))
                how["sink"] = pick(0, 4)
            if pick(0, 2) == 0:
                how["slopes"] = torch.rand(heads)
            tensors = [self.draw(2, heads, queries, hdim, dtype=dtype),
                       self.draw(2, heads_kv, keys, hdim, dtype=dtype),
                       self.draw(2, heads_kv, keys, pick(1, 40), dtype=dtype)]
            if "slopes" not in how and pick(0, 1):
                tensors.append(self.draw(*((pick(0, 1) and n) or 1 for n in (2, heads, queries,
                                                                             keys)), dtype=dtype))
            drop = {"dropout": 0.3, "seed": i, "return_random": True} if pick(0, 1) else {}
            results = []

            def ours(q, k, v, bias=None):
                found = tessera.torch.attention(q, k, v, bias=bias, layout="bhsd", **how, **drop)
                results.append(found)
                return found[0] if drop else found

            def theirs(q, k, v, bias=None):
                factors = None
                if drop:
                    kept = round(256 * 0.7)
                    factors = torch.where(results[0][1] < kept, 256 / kept, 0.0).double()
                return attended(q, k, v, bias=bias, kept=factors, **how)

            with self.subTest(i=i, seed=SEED):
                self.assert_gradients(
                    ours, theirs, tensors, dtype,
                    f"{dtype} {[tuple(x.shape) for x in tensors]} {how} {drop}")

    def test_short_sequences_left_out(self):
        """Their queries get zeros, and so do keys that no other query sees."""
        sums = torch.tensor([0, 20, 23, 50]), torch.tensor([0, 30, 50, 61])
        tensors = [self.draw(int(sums[at][-1]), 4, 32) for at in (0, 1, 1)]

        def theirs(q, k, v):
            parts = []
            for i in range(3):
                of_q, of_k = (slice(int(s[i]), int(s[i + 1])) for s in sums)
                one = [x.transpose(0, 1) for x in (q[of_q], k[of_k], v[of_k])]
                parts.append(attended(*one).transpose(0, 1) * (of_q.stop - of_q.start > 3))
            return torch.cat(parts)

        found = self.assert_gradients(
            lambda q, k, v: tessera.torch.attention(q, k, v, seqlens_q=sums[0], seqlens_k=sums[1],
                                                    skip_q=3),
            theirs, tensors, torch.float32, "skip_q")
        self.assertTrue((found[0][20:23] == 0).all())
        self.assertTrue((found[1][30:50] == 0).all() and (found[2][30:50] == 0).all())

    def test_packed(self):
        lengths = ((0, 20), (7, 7), (33, 12), (1, 60))
        sums = [torch.tensor([0, *x]).cumsum(0) for x in zip(*lengths)]
        for dtype in LIMITS:
            tensors = [self.draw(int(sums[at][-1]), heads, hdim, dtype=dtype)
                       for at, heads, hdim in ((0, 4, 32), (1, 2, 32), (1, 2, 40))]

            def theirs(q, k, v):
                parts = []
                for i in range(len(lengths)):
                    of_q, of_k = (slice(int(s[i]), int(s[i + 1])) for s in sums)
                    one = [x.transpose(0, 1) for x in (q[of_q], k[of_k], v[of_k])]
                    parts.append(attended(*one, mask="bottom_right").transpose(0, 1))
                return torch.cat(parts)

            self.assert_gradients(
                lambda q, k, v: tessera.torch.attention(q, k, v, mask="bottom_right",
                                                        seqlens_q=sums[0], seqlens_k=sums[1]),
                theirs, tensors, dtype, "packed")

    def test_padded(self):
        """Tokens behind a sequence get zeros."""
        of_q, of_k = torch.tensor([20, 3, 0]), torch.tensor([11, 30, 7])
        tensors = [self.draw(3, tokens, 4, 32) for tokens in (20, 30, 30)]

        def theirs(q, k, v):
            out = torch.zeros_like(q)
            for i in range(3):
                one = [x[i, :n].transpose(0, 1) for x, n in
                       ((q, int(of_q[i])), (k, int(of_k[i])), (v, int(of_k[i])))]
                out[i, :int(of_q[i])] = attended(*one).transpose(0, 1)
            return out

        found = self.assert_gradients(
            lambda q, k, v: tessera.torch.attention(q, k, v, seqlens_q=of_q, seqlens_k=of_k),
            theirs, tensors, torch.float32, "padded")
        self.assertTrue((found[0][1, 3:] == 0).all() and (found[1][0, 11:] == 0).all())

    def test_results_beside_out(self):
        """lse may be asked for, and is the same as without gradients."""
        q, k, v = (self.draw(1, 20, 2, 32) for _ in range(3))
        plain = tessera.torch.attention(q, k, v, return_lse=True)
        q.requires_grad_()
        out, lse = tessera.torch.attention(q, k, v, return_lse=True)
        self.assertTrue(torch.equal(out, plain[0]) and torch.equal(lse, plain[1]))
        self.assertIsNotNone(torch.autograd.grad(out.sum(), q)[0])

    def test_results_that_are_written_into(self):
        """Of both orders of heads and tokens. The backward pass reads what was written over, as
        PyTorch's does, and says so."""
        q = self.draw(2, 4, 20, 32)
        for x in (q, q.transpose(1, 2).contiguous().transpose(1, 2)):
            leaf = x.clone().requires_grad_()
            out = scaled_dot_product_attention(leaf, leaf, leaf)
            before = out.detach().clone()
            out += 1
            self.assertTrue(torch.equal(out, before + 1))
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                out.sum().backward()

    def test_operator_without_lse(self):
        """The backward pass computes it."""
        tensors = [self.draw(2, 4, 20, 32) for _ in range(3)]
        self.assert_gradients(
            lambda q, k, v: torch.ops.tessera.attention(
                q, k, v, *(None,) * 7, "bhsd", None, None, 0, None, 0.0, None, None, 0, 0.0, False,
                False)[0],
            attended, tensors, torch.float32)

    def test_operators_follow_pytorchs_rules(self):
        q, k, v = (self.draw(2, 3, 20, 16).requires_grad_() for _ in range(3))
        more = (None,) * 7 + ("bhsd", "top_left", None, 0, None, 0.0, None, None, 0, 0.0, True,
                              False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.library.opcheck(torch.ops.tessera.attention.default, (q, k, v, *more),
                                  test_utils=("test_schema", "test_faketensor"))
        out, lse, _ = torch.ops.tessera.attention(q.detach(), k.detach(), v.detach(), *more)
        torch.library.opcheck(
            torch.ops.tessera.attention_backward.default,
            (out, q.detach(), k.detach(), v.detach(), None, None, out, lse, None, None, None,
             *more[7:17], False), test_utils=("test_schema", "test_faketensor"))

    def test_autocast(self):
        q, k, v = (self.draw(2, 4, 20, 32).requires_grad_() for _ in range(3))
        with torch.autocast("cpu", torch.bfloat16):
            out = scaled_dot_product_attention(q, k, v)
        self.assertEqual(out.dtype, torch.bfloat16)
        out.float().square().sum().backward()
        self.assertEqual(q.grad.dtype, torch.float32)
        wide = self.leaves([x.double() for x in (q, k, v)])
        functional.scaled_dot_product_attention(*wide).square().sum().backward()
        for got, want in zip((q, k, v), wide):
            self.assertLess(float((got.grad - want.grad).abs().max()),
                            5e-2 * float(want.grad.abs().max()))

    def test_a_layer_learns(self):
        """A few steps, beside the same with PyTorch's function."""
        def losses(function):
            torch.manual_seed(3)
            layer = torch.nn.Linear(32, 96)
            steps = torch.optim.SGD(layer.parameters(), lr=0.5)
            x, goal = torch.randn(2, 20, 32), torch.randn(2, 20, 32)
            found = []
            for _ in range(5):
                q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2)
                           for y in layer(x).chunk(3, -1))
                out = function(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
                loss = (out - goal).square().mean()
                steps.zero_grad()
                loss.backward()
                steps.step()
                found.append(loss.item())
            return found

        ours, theirs = losses(scaled_dot_product_attention), losses(
            functional.scaled_dot_product_attention)
        self.assertLess(ours[-1], ours[0])
        for one, other in zip(ours, theirs):
            self.assertAlmostEqual(one, other, places=5)


class GradientOfLse(Gradients):
    """Of functions that return (out, lse) or lse alone."""

    def right(self, q, k, v, bias=None, soft_cap=0.0):
        """Of (batch, heads, tokens, hdim) in fp64."""
        scores = q @ k.mT * q.shape[-1]**-0.5
        scores = soft_cap * torch.tanh(scores / soft_cap) if soft_cap else scores
        scores = scores if bias is None else scores + bias
        return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)

    def assert_right(self, ours, theirs, tensors, dtype, hint, size=1.0, with_out=True):
        """size: of the gradient of lse, beside which that of out has a size of 1."""
        found = []
        mine, wide = self.leaves(tensors), self.leaves([x.double() for x in tensors])
        (out, lse), (right_out, right_lse) = ours(*mine), theirs(*wide)
        dout, dlse = self.draw(*out.shape, dtype=dtype), size * self.draw(*lse.shape)
        for results, kind, leaves in (((out, lse), dtype, mine),
                                      ((right_out, right_lse), torch.float64, wide)):
            ends, grads = results[1:], (dlse.to(results[1].dtype),)
            if with_out:
                ends, grads = results, (dout.to(kind), *grads)
            found.append(torch.autograd.grad(ends, leaves, grads, allow_unused=True))
        for at, (got, want, leaf) in enumerate(zip(*found, mine)):
            want = torch.zeros_like(leaf).double() if want is None else want
            self.assertEqual((got.shape, got.dtype), (leaf.shape, leaf.dtype))
            most = max(float(want.abs().max()), min(size, 1.0))
            self.assertLessEqual(float((got.double() - want).abs().max()),
                                 4 * LIMITS[dtype] * most, f"gradient {at} of {hint}, {SEED}")

    def test_types_and_sizes(self):
        for dtype in LIMITS:
            for layout in ("bshd", "bhsd"):
                turn = (lambda x: x.transpose(1, 2)) if layout == "bshd" else (lambda x: x)

                def ours(q, k, v, bias=None, **how):
                    out, lse = tessera.torch.attention(turn(q), turn(k), turn(v), bias=bias,
                                                       layout=layout, return_lse=True, **how)
                    return turn(out), lse
                tensors = [self.draw(2, 3, *x, dtype=dtype) for x in ((20, 16), (30, 16), (30, 8))]
                for size in (1.0, 1e-3, 1e4):
                    self.assert_right(ours, self.right, tensors, dtype, (dtype, layout, size), size,
                                      with_out=size == 1)
                self.assert_right(ours, self.right, [*tensors, self.draw(3, 20, 30, dtype=dtype)],
                                  dtype, (dtype, layout, "bias"))
                self.assert_right(lambda *x: ours(*x, soft_cap=2.0),
                                  lambda *x: self.right(*x, soft_cap=2.0), tensors, dtype, "cap")

    def test_packed(self):
        of_q, of_k = torch.tensor([0, 7, 7, 20]), torch.tensor([0, 12, 20, 30])

        def theirs(q, k, v):
            parts = [self.right(*(x[s[i]:s[i + 1]].transpose(0, 1) for x, s in
                                  ((q, of_q), (k, of_k), (v, of_k)))) for i in range(3)]
            return (torch.cat([out.transpose(0, 1) for out, _ in parts]),
                    torch.cat([lse for _, lse in parts], -1))
        self.assert_right(
            lambda *x: tessera.torch.attention(*x, seqlens_q=of_q, seqlens_k=of_k,
                                               return_lse=True),
            theirs, [self.draw(n, 2, 16) for n in (20, 30, 30)], torch.float32, "packed")

    def test_transforms(self):
        tensors = [self.draw(1, 2, 4, 8) for _ in range(3)]

        def ours(*given):
            return tessera.torch.attention(*given, layout="bhsd", return_lse=True)
        for backend in ("aot_eager", "inductor"):
            compiled = torch.compile(ours, fullgraph=True, backend=backend)
            self.assert_right(compiled, self.right, tensors, torch.float32, backend)
        found = torch.func.jacrev(lambda q: ours(q, *tensors[1:])[1])(tensors[0])
        wanted = torch.func.jacrev(lambda q: self.right(q, *[x.double() for x in tensors[1:]])[1])(
            tensors[0].double())
        self.assertLessEqual(float((found - wanted).abs().max()), LIMITS[torch.float32])


class Refusals(Gradients):
    def refused(self, sentence, function, *args, **how):
        with self.assertRaisesRegex(tessera.Error, sentence):
            function(*args, **how)

    def test_what_has_no_gradient(self):
        q, k, v = (self.draw(1, 20, 4, 32).requires_grad_() for _ in range(3))
        call = tessera.torch.attention
        table = torch.zeros(1, 2, dtype=torch.int32)
        self.refused("q requires a gradient, which attention has not where keys lie in pages", call,
                     q, k.detach(), v.detach(), page_table=table)
        narrow = [x.detach().to(torch.float8_e4m3fn) for x in (k, v)]
        self.refused("q requires a gradient, which attention has not where k has 8 bits", call, q,
                     *narrow)
        out = call(q, k, v)
        dq, = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        self.refused("attention has no second derivative", torch.autograd.grad, dq.sum(), q)


if __name__ == "__main__":
    unittest.main()
