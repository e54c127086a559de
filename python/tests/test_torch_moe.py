"""Mixtures of experts of tessera.torch against their definition in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import ctypes
import itertools
import unittest
import unittest.mock

from test_torch import SEED, Case

import torch

import tessera
import tessera.torch

ACTIVATIONS = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
               "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}


def setUpModule():
    print(f"test_torch_moe: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


def by_tokens(x, ids, weights, w1, w2, activation="silu"):
    """The definition, token by token and expert by expert."""
    rows = []
    for t in range(x.shape[0]):
        row = x.new_zeros(x.shape[1])
        for expert, weight in zip(ids[t].tolist(), weights[t]):
            if not 0 <= expert < w1.shape[0]:
                continue
            gate, up = (w1[expert] @ x[t]).chunk(2)
            row = row + weight * (w2[expert] @ (ACTIVATIONS[activation](gate) * up))
        rows.append(row)
    return torch.stack(rows) if rows else torch.zeros_like(x)


class Product:
    """Stands for the plan of a product with scales of blocks and rows by index, which CPUs lack:
    computes it in fp64 from the fields of its problem and the operands at their addresses."""

    def __init__(self, fields, names, tensors):
        tessera.Problem("gemm", **fields)
        self.fields, self.names, self.like = fields, names, [torch.empty_like(t) for t in tensors]

    def launch(self, addresses):
        x = {name: torch.frombuffer((ctypes.c_uint8 * (like.numel() * like.itemsize)).from_address(
                 address), dtype=torch.uint8).view(like.dtype).view(like.shape)
             for name, address, like in zip(self.names, addresses, self.like)}
        a, b = (x[name].double() for name in "ab")
        a = a * self.spread(x["scale_a"], a.shape, 1)
        b = b * self.spread(x["scale_b"], b.shape, 128)
        begin = 0
        for expert, end in enumerate(x["group_ends"].tolist()):
            for row in range(begin, end):
                self.row(x, row, int(x["row_index"][row]), a, b[expert])
            begin = end

    def spread(self, scale, shape, rows):
        wide = scale.double().repeat_interleave(rows, -2).repeat_interleave(128, -1)
        return wide[..., :shape[-2], :shape[-1]]

    def row(self, x, row, named, a, b):
        if self.fields["indexing"] == "scattered":
            x["out"][named] = (b @ a[row] * float(x["d0"][named])).to(x["out"].dtype)
        elif "gate" in self.fields:
            gate, up = (b @ a[named]).float().chunk(2)
            made = torch.nn.functional.silu(gate) * up
            small, scale = tessera.torch.quantise(made.unsqueeze(0), quant="block")
            x["out"][row], x["out_scales"][row] = small[0], scale[0]
        else:
            x["out"][row] = (b @ a[named]).to(x["out"].dtype)


class Experts(Case):
    def layer(self, dtype, tokens=13, hidden=32, inner=24, experts=6, top_k=2):
        draw = lambda *shape: (torch.randn(*shape) / shape[-1]**0.5).to(dtype)
        ids = torch.rand(tokens, experts).argsort(1)[:, :top_k]
        return (torch.randn(tokens, hidden).to(dtype), ids, torch.rand(tokens, top_k),
                draw(experts, 2 * inner, hidden), draw(experts, hidden, inner))

    def compare(self, got, wanted, dtype, what):
        # Each of three roundings to the type, and sums of fp32, of numbers near 1.
        bound = 40 * torch.finfo(dtype).eps
        with self.subTest(what=what, dtype=dtype, seed=SEED):
            self.assertEqual((got.shape, got.dtype), (wanted.shape, dtype))
            if got.numel() > 0:
                self.assertLess((got.double() - wanted).abs().max().item(), bound)

    def test_types_and_activations(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for activation in ACTIVATIONS:
                x, ids, weights, w1, w2 = self.layer(dtype)
                wanted = by_tokens(x.double(), ids, weights.double(), w1.double(), w2.double(),
                                   activation)
                got = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2,
                                              activation=activation)
                self.compare(got, wanted, dtype, activation)

    def test_random_sizes_and_one_expert_with_all(self):
        for _ in range(6):
            sizes = {"tokens": self.random.choice((0, 1, 2, 17)),
                     "hidden": self.random.randrange(1, 40), "inner": self.random.randrange(1, 40),
                     "experts": self.random.choice((3, 4, 9)), "top_k": self.random.randrange(1, 4)}
            x, ids, weights, w1, w2 = self.layer(torch.float32, **sizes)
            if self.random.random() < 0.3:
                ids = torch.zeros_like(ids)
            wanted = by_tokens(x.double(), ids, weights.double(), w1.double(), w2.double())
            got = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=sizes["top_k"])
            self.compare(got, wanted, torch.float32, sizes)

    def test_one_token_whose_row_has_any_stride(self):
        x, ids, weights, w1, w2 = self.layer(torch.float32, tokens=1)
        column = torch.empty(32, 1)
        column[:, 0] = x[0]
        got = tessera.torch.fused_moe(column.T, (ids, weights), w1, w2, top_k=2)
        wanted = by_tokens(x.double(), ids, weights.double(), w1.double(), w2.double())
        self.compare(got, wanted, torch.float32, column.T.stride())

    def test_ids_of_no_expert_add_nothing(self):
        x, ids, weights, w1, w2 = self.layer(torch.float32)
        ids[0], ids[3, 1] = -1, 6
        wanted = by_tokens(x.double(), ids, weights.double(), w1.double(), w2.double())
        got = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2)
        self.assertTrue(torch.equal(got[0], torch.zeros(32)))
        self.compare(got, wanted, torch.float32, "no expert")

    def test_logits_groups_bias_and_shared_experts(self):
        x, _, _, w1, w2 = self.layer(torch.float32, experts=8)
        logits, bias = torch.randn(13, 8), torch.randn(8)
        shared = (torch.randn(2 * 10, 32) / 6, torch.randn(32, 10) / 3)
        for router, given in (("softmax", None), ("sigmoid", bias)):
            got = tessera.torch.fused_moe(x, logits, w1, w2, top_k=3, router=router,
                                          router_bias=given, num_groups=4, top_groups=2,
                                          scaling_factor=2.5, shared=shared)
            ids, weights = self.routed(logits.double(), router, given)
            wanted = by_tokens(x.double(), ids, 2.5 * weights, w1.double(), w2.double())
            gate, up = (x.double() @ shared[0].double().T).chunk(2, 1)
            wanted = wanted + (ACTIVATIONS["silu"](gate) * up) @ shared[1].double().T
            self.compare(got, wanted, torch.float32, router)

    def routed(self, logits, router, bias):
        """Three of eight experts in four groups, of which two are kept: by the definition."""
        scores = logits.softmax(1) if router == "softmax" else logits.sigmoid()
        choice = scores if bias is None else scores + bias.double()
        ids = []
        for row in choice.tolist():
            groups = [row[2 * i:2 * i + 2] for i in range(4)]
            worth = [max(group) if bias is None else sum(group) for group in groups]
            kept = sorted(range(4), key=lambda i: -worth[i])[:2]
            allowed = [e for e in range(8) if e // 2 in kept]
            ids.append(sorted(allowed, key=lambda e: -row[e])[:3])
        ids = torch.tensor(ids)
        weights = scores.gather(1, ids)
        return ids, weights / weights.sum(1, keepdim=True)

    def test_gradients(self):
        for dtype in (torch.float32, torch.bfloat16):
            x, ids, weights, w1, w2 = self.layer(dtype)
            leaves = [t.detach().requires_grad_() for t in (x, weights, w1, w2)]
            wide = [t.detach().double().requires_grad_() for t in (x, weights, w1, w2)]
            got = tessera.torch.fused_moe(leaves[0], (ids, leaves[1]), *leaves[2:], top_k=2)
            wanted = by_tokens(wide[0], ids, *wide[1:])
            self.compare(got, wanted, dtype, "with gradients")
            grad = torch.randn(got.shape).to(dtype)
            found = torch.autograd.grad(got, leaves, grad)
            right = torch.autograd.grad(wanted, wide, grad.double())
            for name, mine, other in zip(("x", "weights", "w1", "w2"), found, right):
                bound = 60 * torch.finfo(dtype).eps * max(1.0, other.abs().max().item())
                with self.subTest(name=name, dtype=dtype, seed=SEED):
                    self.assertLess((mine.double() - other).abs().max().item(), bound)

    def test_repeats_give_the_same_bits(self):
        x, ids, weights, w1, w2 = self.layer(torch.bfloat16)
        calls = [tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2) for _ in range(3)]
        for other in calls[1:]:
            self.assertTrue(torch.equal(calls[0], other))

    def test_traced(self):
        x, ids, weights, w1, w2 = self.layer(torch.float32)
        traced = torch.compile(
            lambda *given: tessera.torch.fused_moe(given[0], given[1:3], *given[3:], top_k=2),
            backend="eager", fullgraph=True)
        self.assertTrue(torch.equal(
            traced(x, ids, weights, w1, w2),
            tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2)))

    def test_logits_give_what_their_experts_give(self):
        for dtype in (torch.float32, torch.bfloat16):
            x, _, _, w1, w2 = self.layer(dtype, experts=8)
            for logits in (torch.randn(13, 8), torch.randn(13, 8).to(dtype), torch.randn(8, 13).T):
                got = tessera.torch.fused_moe(x, logits, w1, w2, top_k=3)
                routed = tessera.torch.route(logits, 3)
                self.assertTrue(torch.equal(
                    got, tessera.torch.fused_moe(x, routed, w1, w2, top_k=3)))

    def test_routes(self):
        logits, bias = torch.randn(13, 8), torch.randn(8)
        for router, given in (("softmax", None), ("sigmoid", bias)):
            ids, weights = tessera.torch.route(logits, 3, router=router, router_bias=given,
                                               num_groups=4, top_groups=2)
            wanted_ids, wanted = self.routed(logits.double(), router, given)
            self.assertEqual((ids.dtype, weights.dtype), (torch.int64, torch.float32))
            self.assertTrue(torch.equal(ids, wanted_ids))
            self.assertLess((weights - wanted).abs().max().item(), 1e-6)
            leaf, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
            factors = torch.randn(13, 3)
            _, mine = tessera.torch.route(leaf, 3, router=router, router_bias=given, num_groups=4,
                                          top_groups=2)
            _, other = self.routed(wide, router, given)
            (mine * factors).sum().backward(), (other * factors.double()).sum().backward()
            self.assertLess((leaf.grad - wide.grad).abs().max().item(), 1e-5)

    def test_routes_are_traced(self):
        logits = torch.randn(13, 8)
        traced = torch.compile(lambda x: tessera.torch.route(x, 3), backend="eager",
                               fullgraph=True)
        for got, wanted in zip(traced(logits), tessera.torch.route(logits, 3)):
            self.assertTrue(torch.equal(got, wanted))
        for op, given in ((torch.ops.tessera.route, (3, "softmax", True, 1, 1, 1.0)),
                          (torch.ops.tessera.route_in_order, (3, "sigmoid", False, 2, 1, 2.0))):
            torch.library.opcheck(op.default, (logits, None, *given))
        torch.library.opcheck(torch.ops.tessera.order_by_expert.default,
                              (torch.randint(-1, 8, (5, 2), dtype=torch.int32), 8))

    # A GPU runs the same launches; this layer is one that Hopper's kernels serve.
    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_on_a_gpu(self):
        dtype = torch.bfloat16
        for tokens in (1, 50, 700):
            cpu = self.layer(dtype, tokens=tokens, hidden=256, inner=128, experts=16, top_k=4)
            x, w1, w2 = (cpu[i].cuda() for i in (0, 3, 4))
            logits = torch.randn(tokens, 16)
            ids, weights = tessera.torch.route(logits, 4)
            wanted = by_tokens(cpu[0].double(), ids, weights.double(), cpu[3].double(),
                               cpu[4].double())
            on_gpu = logits.cuda()
            call = lambda: tessera.torch.fused_moe(x, on_gpu, w1, w2, top_k=4)
            got = call()
            self.compare(got.cpu(), wanted, dtype, tokens)
            self.assertTrue(torch.equal(got, call()))
            given = tessera.torch.fused_moe(x, (ids.cuda(), weights.cuda()), w1, w2, top_k=4)
            self.compare(given.cpu(), wanted, dtype, ("given", tokens))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = call()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(captured, got))

    def test_kernels_that_lack_are_told(self):
        """Where no kernel serves, rows are copied, and a warning says why."""
        x, ids, weights, w1, w2 = self.layer(torch.float32)
        refused = tessera.Error("gemm: no such kernel", "unsupported")
        tessera.torch._run.forget()
        with unittest.mock.patch.object(tessera.torch._moe, "_bind_products",
                                        side_effect=refused):
            with self.assertWarnsRegex(UserWarning, "by experts on cpu, because .*no such kernel"):
                got = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2)
            logits = torch.randn(13, 6)
            with self.assertWarns(UserWarning):
                routed = tessera.torch.fused_moe(x, logits, w1, w2, top_k=2)
        tessera.torch._run.forget()
        wanted = by_tokens(x.double(), ids, weights.double(), w1.double(), w2.double())
        self.compare(got, wanted, torch.float32, "copies")
        own = tessera.torch.fused_moe(x, logits, w1, w2, top_k=2)
        self.assertLess((routed - own).abs().max().item(), 1e-5)

    def quantised(self, weights):
        """Weights of 8 bits, their scales, and what they stand for in fp64."""
        experts, rows, columns = weights.shape
        wide = torch.nn.functional.pad(weights.double(), (0, -columns % 128, 0, -rows % 128))
        tiles = wide.view(experts, wide.shape[1] // 128, 128, wide.shape[2] // 128, 128)
        scale = (tiles.abs().amax((2, 4)) / 448).float()
        each = scale.double().repeat_interleave(128, 1).repeat_interleave(128, 2)
        each = each[:, :rows, :columns]
        small = (weights.double() / each).to(torch.float8_e4m3fn)
        return small, scale, small.double() * each

    def test_weights_of_8_bits(self):
        for dtype in (torch.float32, torch.bfloat16):
            for hidden, inner in ((256, 128), (200, 70)):
                x, ids, weights, w1, w2 = self.layer(dtype, hidden=hidden, inner=inner)
                ids[2] = -1
                (w1, w1_scale, wide1), (w2, w2_scale, wide2) = map(self.quantised, (w1, w2))
                got = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2,
                                              w1_scale=w1_scale, w2_scale=w2_scale)
                wanted = by_tokens(x.double(), ids, weights.double(), wide1, wide2)
                # Roundings to 3 bits of x and of what lies between the products.
                error = (got.double() - wanted).norm() / wanted.norm()
                with self.subTest(dtype=dtype, hidden=hidden, inner=inner, seed=SEED):
                    self.assertEqual((got.shape, got.dtype), (x.shape, dtype))
                    self.assertTrue(torch.equal(got[2], torch.zeros_like(got[2])))
                    self.assertLess(error.item(), 0.06)
                logits = torch.randn(13, 6)
                routed = tessera.torch.fused_moe(x, logits, w1, w2, top_k=2, w1_scale=w1_scale,
                                                 w2_scale=w2_scale)
                own = tessera.torch.fused_moe(x, tessera.torch.route(logits, 2), w1, w2, top_k=2,
                                              w1_scale=w1_scale, w2_scale=w2_scale)
                self.assertTrue(torch.equal(routed, own))
    def test_x_of_8_bits(self):
        """Where x has its scales, it is not quantised again, and the result has bfloat16."""
        x, ids, weights, w1, w2 = self.layer(torch.bfloat16, hidden=200, inner=70)
        (w1, w1_scale, _), (w2, w2_scale, _) = map(self.quantised, (w1, w2))
        own = tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2, w1_scale=w1_scale,
                                      w2_scale=w2_scale)
        small, x_scale = tessera.torch.quantise(x, quant="block")
        for scale in (x_scale, x_scale.T.contiguous().T):
            got = tessera.torch.fused_moe(small, (ids, weights), w1, w2, top_k=2, w1_scale=w1_scale,
                                          w2_scale=w2_scale, x_scale=scale)
            self.assertEqual(got.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(got, own))
        empty = tessera.torch.fused_moe(small[:0], (ids[:0], weights[:0]), w1, w2, top_k=2,
                                        w1_scale=w1_scale, w2_scale=w2_scale, x_scale=x_scale[:0])
        self.assertEqual((tuple(empty.shape), empty.dtype), ((0, 200), torch.bfloat16))
        given = {"w1_scale": w1_scale, "w2_scale": w2_scale}
        for rows, options, sentence in (
                (small, {"x_scale": x_scale[1:], **given},
                 "x_scale must have the shape (13, 2) and the type float32, one for each 128 "
                 "elements of a row, got (12, 2) of float32"),
                (x, {"x_scale": x_scale, **given},
                 "x must have the type float8_e4m3fn beside x_scale, got bfloat16"),
                (small, given, "x must have the type bfloat16, float16 or float32 without x_scale, "
                 "got float8_e4m3fn"),
                (small, {"x_scale": x_scale},
                 "w1_scale and w2_scale must be given together, and beside x_scale")):
            with self.assertRaises(tessera.Error) as raised:
                tessera.torch.fused_moe(rows, (ids, weights), w1, w2, top_k=2, **options)
            self.assertEqual(str(raised.exception), f"fused_moe: {sentence}")

    def test_launches_by_index(self):
        """The launches of a GPU, with PyTorch for its products, give what copies of rows give."""
        moe, run = tessera.torch._moe_scaled, tessera.torch._run
        launch = lambda bound, addresses, like, own=run.launch: (
            bound.launch(addresses) if isinstance(bound, Product) else own(bound, addresses, like))
        for tokens, hidden, inner, experts in ((13, 200, 70, 6), (80, 256, 128, 2)):
            x, ids, weights, w1, w2 = self.layer(torch.float32, tokens=tokens, hidden=hidden,
                                                 inner=inner, experts=experts)
            (w1, w1_scale, _), (w2, w2_scale, _) = map(self.quantised, (w1, w2))
            ids = ids.int()
            ids[2] = -1
            rows = (x, None), tessera.torch.quantise(x, quant="block")
            rule = tessera.torch._routing.Rule(2)
            logits = torch.randn(tokens, experts)
            cases = itertools.product(rows, ((None, (ids, weights)), (rule, (logits, None))))
            for known, (asked, given) in cases:
                run.forget()
                with unittest.mock.patch.object(moe._moe_plans, "bind_product", Product), \
                        unittest.mock.patch.object(run, "launch", launch):
                    got = moe._by_index(moe.Asked("silu_mul", asked), x.dtype, known[0],
                                        (*known, w1, w2, w1_scale, w2_scale, *given), 2)
                run.forget()
                own = tessera.torch.fused_moe(x, given[0] if asked else given, w1, w2, top_k=2,
                                              w1_scale=w1_scale, w2_scale=w2_scale)
                error = (got - own).norm() / own.norm()
                # An element in 8 bits may round to its other neighbour.
                self.assertLess(error.item(), 0.01)

    # The first two layers are ones that Hopper's kernels by the copy engine serve.
    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_weights_of_8_bits_on_a_gpu(self):
        for dtype in (torch.float32, torch.bfloat16):
            for tokens, hidden, inner in ((1, 256, 128), (300, 512, 256), (13, 200, 70)):
                x, ids, weights, w1, w2 = self.layer(dtype, tokens=tokens, hidden=hidden,
                                                     inner=inner, experts=16, top_k=4)
                ids[0] = -1 if tokens > 1 else ids[0]
                (w1, w1_scale, wide1), (w2, w2_scale, wide2) = map(self.quantised, (w1, w2))
                here = [tensor.cuda() for tensor in (x, w1, w2, w1_scale, w2_scale)]
                given = {"top_k": 4, "w1_scale": here[3], "w2_scale": here[4]}
                wanted = by_tokens(x.double(), ids, weights.double(), wide1, wide2)
                routed = ids.cuda(), weights.cuda()
                got = tessera.torch.fused_moe(here[0], routed, *here[1:3], **given)
                error = (got.cpu().double() - wanted).norm() / wanted.norm()
                with self.subTest(dtype=dtype, tokens=tokens, hidden=hidden, seed=SEED):
                    self.assertEqual((got.shape, got.dtype), (x.shape, dtype))
                    self.assertLess(error.item(), 0.06)
                    if tokens > 1:
                        self.assertTrue(torch.equal(got[0].cpu(), torch.zeros(hidden).to(dtype)))
                self.check_replays(here, given, torch.randn(tokens, 16).cuda())

    def check_replays(self, here, given, logits):
        """From logits, and from x in 8 bits: equal bits in repeats and from a captured graph."""
        small, x_scale = tessera.torch.quantise(here[0], quant="block")
        for x, more in ((here[0], {}), (small, {"x_scale": x_scale})):
            call = lambda: tessera.torch.fused_moe(x, logits, *here[1:3], **given, **more)
            first = call()
            self.assertTrue(torch.equal(first, call()))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = call()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(captured, first))
            ids, weights = tessera.torch.route(logits, 4)
            other = tessera.torch.fused_moe(x, (ids, weights), *here[1:3], **given, **more)
            error = (first - other).double().norm() / other.double().norm()
            self.assertLess(error.item(), 0.01)  # the weights may differ in their last bit

    def test_refusals_of_scales(self):
        x, ids, weights, w1, w2 = self.layer(torch.float32, hidden=200, inner=70)
        (w1, w1_scale, _), (w2, w2_scale, _) = map(self.quantised, (w1, w2))
        for scales, sentence in (
                ((w1_scale, None), "w1_scale and w2_scale must be given together"),
                ((w1_scale[:, 1:], w2_scale),
                 "w1_scale must have the shape (6, 2, 2) and the type float32, one for each "
                 "128 x 128 elements, got (6, 1, 2) of float32")):
            with self.assertRaises(tessera.Error) as raised:
                tessera.torch.fused_moe(x, (ids, weights), w1, w2, top_k=2, w1_scale=scales[0],
                                        w2_scale=scales[1])
            self.assertEqual(str(raised.exception), f"fused_moe: {sentence}")

    def test_refusals(self):
        x, ids, weights, w1, w2 = self.layer(torch.float32)
        call = tessera.torch.fused_moe
        rows = [
            (lambda: call(x, (ids, weights), w1, w2, top_k=3),
             "fused_moe: ids and weights must have the shape (tokens, top_k=3), got (13, 2) and "
             "(13, 2)"),
            (lambda: call(x, (ids, weights), w1[:, :-2], w2, top_k=2),
             "fused_moe: w1 must have the shape (6, 48, 32) beside x (13, 32) and w2 (6, 32, 24), "
             "got (6, 46, 32)"),
            (lambda: call(x, (ids, weights), w1, w2, top_k=2, activation="relu"),
             "fused_moe: activation must be one of silu, gelu, gelu_tanh, got 'relu'"),
            (lambda: call(x, torch.randn(13, 6), w1, w2, top_k=7),
             "fused_moe: top_k must be between 1 and the number of experts, 6, got 7"),
            (lambda: call(x, torch.randn(13, 6), w1, w2, top_k=2, num_groups=4),
             "fused_moe: num_groups must divide the number of experts, 6, got 4"),
            (lambda: call(x, torch.randn(13, 5), w1, w2, top_k=2),
             "fused_moe: router_logits must have 6 columns, one for each expert, got 5"),
            (lambda: call(x, torch.randn(12, 6), w1, w2, top_k=2),
             "fused_moe: the routing must have 13 rows, one for each token, got 12"),
        ]
        for refused, sentence in rows:
            with self.assertRaises(tessera.Error) as raised:
                refused()
            self.assertEqual(str(raised.exception), sentence)


if __name__ == "__main__":
    unittest.main()
