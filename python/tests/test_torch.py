"""tessera.torch against PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run. TESSERA_TEST_DEVICES="cuda" tests these devices alone.
"""
import copy
import itertools
import os
import random
import time
import unittest

WANTED = os.environ.get("TESSERA_TEST_TORCH") == "1"
try:
    import torch
    import torch.nn.functional as functional
    from torch import nn
except ImportError:
    if WANTED:
        raise
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")

import tessera
import tessera.torch
from tessera.torch import _ops, _run

SEED = int(os.environ.get("TESSERA_TEST_SEED", time.time_ns() % 10**6))
ACTIVATIONS = {None: lambda x: x, "relu": torch.relu, "gelu": functional.gelu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
               "silu": functional.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}
DEVICES = os.environ.get("TESSERA_TEST_DEVICES", "").split() or \
    ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def setUpModule():
    print(f"test_torch: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def product_tolerance(a, b, extra, dtype):
    """How far a product in fp32 sums may be from fp64: a rounding of fp32 for each of k + 2 steps,
    times the sum of magnitudes; activations have a slope below 1.2, and an error of 8 roundings of
    their own; then one rounding of the result's type."""
    k = a.shape[-1]
    magnitude = a.double().abs() @ b.double().abs() + extra
    wide, narrow = torch.finfo(torch.float32).eps, torch.finfo(dtype).eps
    return 1.2 * (k + 10) * wide * magnitude + narrow * (magnitude + 1e-3)


def wide(tensor):
    return None if tensor is None else tensor.detach().double()


class Case(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")
        torch.manual_seed(self.random.randrange(2**31))

    def assert_close(self, result, expected, tolerance, note=""):
        self.assertEqual(tuple(result.shape), tuple(expected.shape), note)
        if result.numel() == 0:
            return
        excess = ((result.double() - expected).abs() - tolerance).max()
        self.assertLessEqual(float(excess), 0, f"{note} seed {SEED}")

    def assert_linear(self, x, weight, bias, activation):
        result = tessera.torch.linear(x, weight, bias, activation)
        self.assertEqual(result.dtype, x.dtype)
        extra = 0 if bias is None else wide(bias).abs()
        expected = ACTIVATIONS[activation](functional.linear(wide(x), wide(weight), wide(bias)))
        # However small a product is, its sigmoid is near 0.5 and has the roundings of 0.5.
        own = 8 * torch.finfo(torch.float32).eps + torch.finfo(x.dtype).eps
        self.assert_close(result, expected,
                          product_tolerance(x, weight.mT, extra, x.dtype) + own * expected.abs(),
                          f"{tuple(x.shape)} x {tuple(weight.shape)} {activation} {x.dtype}")

    def assert_error(self, sentence, function, *arguments):
        with self.assertRaises(tessera.Error) as caught:
            function(*arguments)
        self.assertEqual(str(caught.exception), sentence)


class Linear(Case):
    def test_random_shapes(self):
        for device in DEVICES:
            for _ in range(12):
                k, n = self.random.randint(1, 200), self.random.randint(1, 200)
                lead = [self.random.randint(1, 9) for _ in range(self.random.randint(0, 3))]
                x, weight = torch.randn(*lead, k, device=device), torch.randn(n, k, device=device)
                bias = torch.randn(n, device=device) if self.random.random() < 0.7 else None
                activation = self.random.choice(list(ACTIVATIONS))
                with self.subTest(k=k, n=n, lead=lead, device=device):
                    self.assert_linear(x, weight, bias, activation)

    def test_types(self):
        for device in DEVICES:
            for dtype in (torch.float16, torch.bfloat16):
                x, weight, bias = (torch.randn(*s, device=device).to(dtype)
                                   for s in ((40, 64), (48, 64), (48,)))
                with self.subTest(dtype=dtype, device=device):
                    self.assert_linear(x, weight, bias, "gelu")

    def test_no_rows_no_columns_no_depth(self):
        weight, bias = torch.randn(4, 8), torch.randn(4)
        self.assertEqual(tessera.torch.linear(torch.randn(0, 8), weight, bias).shape, (0, 4))
        self.assertEqual(tessera.torch.linear(torch.randn(3, 8), weight[:0]).shape, (3, 0))
        depthless = tessera.torch.linear(torch.randn(3, 0), torch.randn(4, 0), bias)
        self.assertTrue(torch.equal(depthless, bias.expand(3, 4)))

    def test_strides(self):
        weight, bias = torch.randn(16, 24), torch.randn(16)
        base = torch.randn(6, 10, 48)
        for x in (base[..., :24], base[..., ::2], base[:, ::3, 24:], base.mT[:, :24].mT,
                  base[:1, :, :24].expand(5, 10, 24), torch.randn(24, 6).T,
                  torch.randn(10, 6, 24).transpose(0, 1)):
            self.assert_linear(x, weight, bias, "relu")
        for other in (torch.randn(24, 16).T, torch.randn(32, 24)[::2], torch.randn(16, 48)[:, ::2],
                      torch.randn(1, 24).expand(16, 24)):
            self.assert_linear(torch.randn(6, 24), other, bias, None)
        self.assert_linear(torch.randn(6, 24), weight, torch.randn(32)[::2], None)

    def test_packed_weight(self):
        for rows in (1, 7, 128):
            layer = tessera.torch.Linear(96, 80, activation="silu").requires_grad_(False)
            x = torch.randn(rows, 96)
            layer.pack(64)
            self.assertIsNotNone(layer.packed)
            expected = functional.silu(functional.linear(wide(x), wide(layer.weight),
                                                         wide(layer.bias)))
            self.assert_close(layer(x), expected, product_tolerance(
                x, layer.weight.mT, layer.bias.abs(), x.dtype), f"{rows} rows")

    def test_packed_weight_that_changes(self):
        layer = tessera.torch.Linear(32, 32).requires_grad_(False)
        layer.pack()
        layer.load_state_dict(tessera.torch.Linear(32, 32).state_dict())
        self.assertIsNone(layer.packed)
        layer.pack()
        self.assertIsNone(layer.to(torch.bfloat16).packed)
        layer.requires_grad_(True)
        self.assert_error("a weight that requires a gradient is not packed, because it will "
                          "change; call requires_grad_(False) first", layer.pack)

    def test_problem_of_8_bits(self):
        """Results of float8 are float16, as those of linear()."""
        layer = tessera.torch.Linear(32, 16, dtype=torch.float8_e4m3fn, bias=False, device="meta")
        self.assertEqual(layer.problem(4).get("out"), "fp16")

    def test_state_dict_of_pytorch(self):
        theirs = nn.Linear(8, 4)
        ours = tessera.torch.Linear(8, 4)
        ours.load_state_dict(theirs.state_dict())
        self.assertEqual(list(ours.state_dict()), ["weight", "bias"])
        x = torch.randn(3, 8)
        torch.testing.assert_close(ours(x), theirs(x))

    def test_autocast(self):
        layer = tessera.torch.Linear(32, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(layer(torch.randn(4, 32)).dtype, torch.bfloat16)


class Matmul(Case):
    def test_batches_and_broadcasts(self):
        for left, right in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
                            ((6, 2, 3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
                            ((5, 1, 3, 4), (5, 2, 4, 6))):
            for device in DEVICES:
                a, b = torch.randn(left, device=device), torch.randn(right, device=device)
                if len(left) == 4 and left[1] == 1:
                    a = a.expand(5, 2, 3, 4).contiguous()
                with self.subTest(left=left, right=right, device=device):
                    self.assert_close(tessera.torch.matmul(a, b), wide(a) @ wide(b),
                                      product_tolerance(a, b, 0, a.dtype))

    def test_batches_on_both_sides(self):
        """Each repeats the other's batches; no single distance leads through both."""
        for device in DEVICES:
            for left, right in (((2, 1, 5, 8), (3, 8, 4)), ((3, 1, 5, 8), (1, 2, 8, 4)),
                                ((2, 1, 3, 1, 5, 8), (4, 1, 2, 8, 4)), ((5, 8), (2, 3, 8, 4)),
                                ((2, 1, 0, 8), (3, 8, 4)), ((8,), (2, 3, 8, 4)),
                                ((2, 3, 5, 8), (8,)), ((0, 1, 5, 8), (3, 8, 4))):
                a, b = torch.randn(left, device=device), torch.randn(right, device=device)
                swapped = b
                if len(right) > 2:
                    swapped = torch.randn(right[:-2] + (4, 8), device=device).mT
                for other in (b, swapped):
                    with self.subTest(left=left, right=right, device=device):
                        self.assert_close(tessera.torch.matmul(a, other), wide(a) @ wide(other),
                                          product_tolerance(a, other, 0, a.dtype)
                                          if 0 not in left else 0)
            a, b = torch.randn(2, 1, 5, 8, device=device), torch.randn(3, 8, 4, device=device)
            bias, more = torch.randn(4, device=device), torch.randn(2, 3, 5, 4, device=device)
            for residual in (more, more.transpose(0, 1).contiguous().transpose(0, 1)):
                self.assert_close(tessera.torch.matmul(a, b, bias, "relu", residual),
                                  (wide(a) @ wide(b) + wide(bias)).relu() + wide(residual),
                                  product_tolerance(a, b, bias.abs() + residual.abs(), a.dtype))
        self.assert_error("matmul: the leading dimensions of a (2, 3) and b (3, 2) do not go "
                          "together", tessera.torch.matmul, torch.randn(2, 3, 5, 8),
                          torch.randn(3, 2, 8, 4))

    def test_batches_on_both_sides_of_any_strides(self):
        """What is copied because of its strides has other distances than it had."""
        views = {
            "expanded": lambda *shape: torch.randn(1, *shape[1:]).expand(shape),
            "every second": lambda *shape: torch.randn(*shape, 2)[..., 0],
            "columns": lambda *shape: torch.randn(*shape).mT.contiguous().mT,
            "gaps": lambda *shape: torch.randn(*shape[:-1], shape[-1] + 3)[..., 1:-2],
            "plain": torch.randn}
        for (one, left), (other, right) in itertools.product(views.items(), repeat=2):
            for lead_a, lead_b in (((3, 1), (3, 2)), ((3,), (3, 1)), ((1, 3), (2, 1)),
                                   ((2, 1, 3), (2, 2, 1)), ((2, 1, 3), (1, 2, 1))):
                a, b = left(*lead_a, 4, 8), right(*lead_b, 8, 5)
                with self.subTest(a=(one, a.shape), b=(other, b.shape)):
                    self.assert_close(tessera.torch.matmul(a, b), wide(a) @ wide(b),
                                      product_tolerance(a, b, 0, a.dtype))

    def test_residual(self):
        a, b, bias, residual = (torch.randn(s) for s in ((9, 16), (16, 7), (7,), (9, 7)))
        expected = functional.gelu(wide(a) @ wide(b) + wide(bias)) + wide(residual)
        self.assert_close(tessera.torch.matmul(a, b, bias, "gelu", residual), expected,
                          product_tolerance(a, b, bias.abs() + residual.abs(), a.dtype))


class Norms(Case):
    def test_random_shapes(self):
        for device in DEVICES:
            for _ in range(6):
                shape = [self.random.randint(1, 7) for _ in range(self.random.randint(0, 2))]
                columns = self.random.randint(1, 300)
                x, other = (torch.randn(*shape, columns, device=device) for _ in range(2))
                scale, shift = (torch.randn(columns, device=device) for _ in range(2))
                with self.subTest(shape=shape, columns=columns, device=device):
                    self.check(x, other, scale, shift)

    def check(self, x, other, scale, shift):
        # Rows of up to 300 elements of about 1: sums of 300 roundings, and few steps after.
        near = dict(rtol=4e-5, atol=4e-5)
        one = tessera.torch
        torch.testing.assert_close(one.softmax(x).double(), wide(x).softmax(-1), **near)
        columns = x.shape[-1:]
        torch.testing.assert_close(
            one.rms_norm(x, scale, epsilon=1e-3).double(),
            functional.rms_norm(wide(x), columns, wide(scale), 1e-3), **near)
        torch.testing.assert_close(
            one.layer_norm(x, scale, shift, epsilon=1e-3).double(),
            functional.layer_norm(wide(x), columns, wide(scale), wide(shift), 1e-3), **near)
        result, total = one.layer_norm(x, scale, shift, residual=other, epsilon=1e-3)
        torch.testing.assert_close(total, x + other)
        torch.testing.assert_close(
            result.double(), functional.layer_norm(wide(x) + wide(other), columns, wide(scale),
                                                   wide(shift), 1e-3), **near)

    def test_squares_beyond_fp32(self):
        """Rows whose squares overflow or vanish in fp32: results and gradients beside fp64's."""
        near = dict(rtol=1e-4, atol=1e-4)
        for device in DEVICES:
            for size in (1e25, 1e38, 1e-25):
                with self.subTest(size=size, device=device):
                    x = (torch.randn(3, 200, device=device).clamp(-3, 3) * size).requires_grad_()
                    exact = wide(x.detach()).requires_grad_()
                    grad = torch.randn(3, 200, device=device)
                    for ours, theirs in ((tessera.torch.rms_norm, functional.rms_norm),
                                         (tessera.torch.layer_norm, functional.layer_norm)):
                        y = ours(x, epsilon=0.0)
                        wanted = theirs(exact, (200,), eps=0.0)
                        torch.testing.assert_close(y.double(), wanted, **near)
                        got, = torch.autograd.grad(y, x, grad)
                        right, = torch.autograd.grad(wanted, exact, wide(grad))
                        torch.testing.assert_close(got.double() * size, right * size, **near)

    def test_strides(self):
        x = torch.randn(6, 40)
        for view in (x[:, ::2], x.T, x[::2], x[:1].expand(4, 40)):
            torch.testing.assert_close(tessera.torch.softmax(view), view.softmax(-1))
        self.assertEqual(tessera.torch.softmax(x[:0]).shape, (0, 40))


class Gradients(Case):
    """The derivatives beside PyTorch's own in fp64."""

    def compare(self, ours, theirs, *tensors):
        leaves = [t.clone().requires_grad_(True) for t in tensors]
        exact = [wide(t).requires_grad_(True) for t in tensors]
        result, expected = ours(*leaves), theirs(*exact)
        upstream = torch.randn(result.shape)
        result.backward(upstream)
        expected.backward(wide(upstream))
        for leaf, true in zip(leaves, exact):
            largest = float(true.grad.abs().max()) + 1
            # Two products one after the other, each of sums of at most 100 elements.
            self.assertLess(float((leaf.grad.double() - true.grad).abs().max()),
                            200 * torch.finfo(torch.float32).eps * largest, f"seed {SEED}")

    def test_linear(self):
        for word, function in ACTIVATIONS.items():
            for lead in ((), (6,), (3, 5)):
                with self.subTest(activation=word, lead=lead):
                    self.compare(lambda x, w, b: tessera.torch.linear(x, w, b, word),
                                 lambda x, w, b: function(functional.linear(x, w, b)),
                                 torch.randn(*lead, 33), torch.randn(17, 33), torch.randn(17))

    def test_linear_without_bias(self):
        self.compare(tessera.torch.linear, functional.linear, torch.randn(5, 8), torch.randn(3, 8))

    def test_matmul(self):
        for left, right in (((5, 8), (8, 3)), ((2, 5, 8), (8, 3)), ((2, 5, 8), (2, 8, 3)),
                            ((8,), (8, 3)), ((5, 8), (8,)), ((2, 1, 5, 8), (3, 8, 4)),
                            ((3, 1, 5, 8), (1, 2, 8, 4)), ((8,), (2, 3, 8, 4)),
                            ((2, 3, 5, 8), (8,)), ((5, 8), (2, 3, 8, 4))):
            with self.subTest(left=left, right=right):
                self.compare(tessera.torch.matmul, torch.matmul, torch.randn(left),
                             torch.randn(right))

    def test_matmul_with_epilogue(self):
        self.compare(lambda a, b, c, r: tessera.torch.matmul(a, b, c, "silu", r),
                     lambda a, b, c, r: functional.silu(a @ b + c) + r,
                     torch.randn(5, 8), torch.randn(8, 3), torch.randn(3), torch.randn(5, 3))

    def test_norms(self):
        x, scale, shift = torch.randn(4, 50), torch.randn(50), torch.randn(50)
        self.compare(tessera.torch.softmax, lambda x: x.softmax(-1), x)
        self.compare(tessera.torch.rms_norm,
                     lambda x, s: functional.rms_norm(x, (50,), s, 1e-5), x, scale)
        self.compare(tessera.torch.layer_norm,
                     lambda x, s, t: functional.layer_norm(x, (50,), s, t, 1e-5), x, scale, shift)
        self.compare(lambda x, r, s: sum(tessera.torch.rms_norm(x, s, residual=r)),
                     lambda x, r, s: functional.rms_norm(x + r, (50,), s, 1e-5) + x + r,
                     x, torch.randn(4, 50), scale)

    def test_kernels_of_backward(self):
        """The products of the backward pass are Tessera's."""
        x, weight = (torch.randn(6, 8, requires_grad=True) for _ in range(2))
        with torch.profiler.profile() as profile:
            tessera.torch.linear(x, weight, torch.randn(6, requires_grad=True)).sum().backward()
        count = {event.key: event.count for event in profile.key_averages()}
        self.assertEqual((count["tessera::linear"], count["tessera::matmul"]), (1, 3))


class Compile(Case):
    def test_whole_graph(self):
        layer = tessera.torch.Linear(24, 16, activation="gelu")

        def function(x):
            y = tessera.torch.rms_norm(layer(x) * 2)
            return tessera.torch.softmax(tessera.torch.matmul(y, y.mT))
        compiled = torch.compile(function, fullgraph=True)
        x = torch.randn(5, 24, requires_grad=True)
        torch.testing.assert_close(compiled(x), function(x))
        compiled(x).square().sum().backward()
        mine, x.grad = x.grad, None
        function(x).square().sum().backward()
        torch.testing.assert_close(mine, x.grad)

    def test_other_sizes(self):
        compiled = torch.compile(tessera.torch.linear, fullgraph=True, dynamic=True)
        weight = torch.randn(16, 24)
        for rows in (3, 5, 8):
            x = torch.randn(rows, 24)
            torch.testing.assert_close(compiled(x, weight), functional.linear(x, weight))

    def test_operators_obey_pytorchs_rules(self):
        ops = torch.ops.tessera
        wants = dict(requires_grad=True)
        x, weight, bias = (torch.randn(*s, **wants) for s in ((3, 8), (4, 8), (4,)))
        scale = torch.randn(8, **wants)
        for op, arguments in ((ops.linear, (x, weight, bias, "silu")),
                              (ops.matmul, (x, weight.detach().mT, bias)),
                              (ops.softmax, (x,)), (ops.rms_norm, (x, scale, 1e-5)),
                              (ops.layer_norm, (x, scale, None, 1e-5)),
                              (ops.add_rms_norm, (x, x.detach(), scale, 1e-5)),
                              (ops.add_layer_norm, (x, x.detach(), scale, scale, 1e-5))):
            with self.subTest(op=str(op)):
                torch.library.opcheck(op.default, arguments)


class Refusals(Case):
    def test_sentences(self):
        x, weight, linear = torch.randn(4, 8), torch.randn(5, 8), tessera.torch.linear
        self.assert_error("the input has the type float64, which Tessera does not know; convert it "
                          "with .float()", linear, x.double(), weight.double())
        self.assert_error("the input has the type float32 and the weight float16; the two must be "
                          "equal", linear, x, weight.half())
        self.assert_error("the input's last dimension must have 8 elements as the weight's has, "
                          "got 7", linear, x[:, :7], weight)
        self.assert_error("the weight must have 2 dimensions, got 1", linear, x, weight[0])
        self.assert_error("matmul: bias must have the shape (5,) and the stride 1, got (4,) and "
                          "(1,)", linear, x, weight, x[:, 0].clone())
        self.assert_error("softmax: x must have at least 1 dimension, got a single number",
                          tessera.torch.softmax, torch.tensor(1.0))
        self.assert_error("the activation must be one of relu, gelu, gelu_tanh, silu, sigmoid, "
                          "tanh, got 'swish'", lambda: tessera.torch.Linear(
                              4, 4, activation="swish"))

    def test_tensors_without_memory(self):
        shape = tessera.torch.linear(torch.randn(4, 8, device="meta"),
                                     torch.randn(5, 8, device="meta")).shape
        self.assertEqual(shape, (4, 5))

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_two_devices(self):
        self.assert_error("the input lies on cuda:0 and the weight on cpu; all tensors must lie on "
                          "one device", tessera.torch.linear, torch.randn(4, 8, device="cuda"),
                          torch.randn(5, 8))


class FeedForward(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.up, self.down, self.function = nn.Linear(32, 64), nn.Linear(64, 32), function

    def forward(self, x):
        return self.down(self.function(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)), FeedForward(nn.SiLU()),
            FeedForward(lambda x: x.relu()), FeedForward(torch.sin))
        self.head = nn.Linear(32, 8, bias=False)
        self.tied = self.head
        self.double = nn.Linear(8, 8).double()

    def forward(self, x, negate=None):
        x = self.tied(self.blocks(x)) + self.head(x)
        return x if negate is None else -x


class Optimize(Case):
    """What each block keeps and how packed weights follow theirs: test_torch_optimize.py."""

    def test_outputs_and_report(self):
        model = Model().eval().requires_grad_(False)
        x = torch.randn(3, 7, 32)
        expected = model(x)
        ours, report = tessera.torch.optimize(copy.deepcopy(model), example=x)
        # Eight products one after the other, of at most 64 elements each.
        self.assertLess(tessera.torch.worst_error(ours(x), expected), 1e-5)
        torch.testing.assert_close(ours(x, negate=True), -ours(x))
        self.assertEqual([layer.activation for layer in report],
                         ["gelu", None, None, None, None, None, None, None, None, None])
        self.assertEqual([kept.name for kept in report.kept], ["blocks.1.function"])
        self.assertIs(ours.head, ours.tied)
        last = report[-1]
        self.assertEqual((last.name, last.problem), ("double", ""))
        self.assertIn("the weight has the type float64", last.note)
        self.assertIn("blocks.0.0: gemm m=21 n=64 k=32 epilogue=bias+gelu", str(report))
        self.assertTrue(str(report).endswith("9 of 10 modules were replaced"))
        torch.testing.assert_close(torch.compile(ours, fullgraph=True)(x), ours(x))

    def test_state_dict_stays(self):
        model = Model().eval().requires_grad_(False)
        before = list(model.state_dict())
        self.assertEqual(list(tessera.torch.optimize(model)[0].state_dict()), before)

    def test_training(self):
        """Weights that train are not packed."""
        model, report = tessera.torch.optimize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.assertEqual(report[0].note, "not packed, because the weight requires a gradient and "
                                         "will change")
        model(torch.randn(3, 8)).sum().backward()
        self.assertIsNotNone(model[0].weight.grad)

    def test_layers_that_are_left_alone(self):
        spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        model, report = tessera.torch.optimize(nn.Sequential(spectral, nn.ReLU()))
        self.assertEqual([layer.note for layer in report],
                         ["it is a ParametrizedLinear, which may compute something else"])
        self.assertIs(model[0], spectral)
        result = model(torch.randn(2, 8)).detach()
        self.assertGreaterEqual(float(result.min()), 0)  # relu is still there

    def test_a_lone_linear(self):
        linear = nn.Linear(8, 4)
        weight = linear.weight
        made, report = tessera.torch.optimize(linear)
        self.assertIs(type(made), tessera.torch.Linear)
        self.assertIs(made, linear)
        self.assertIs(made.weight, weight)
        self.assertEqual(len(report), 1)


class HostTime(Case):
    def test_eager_call(self):
        """The host's time of one eager call beside a launch through C, the best of many readings;
        a loaded machine gets five times the limit."""
        x, weight, bias = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4)

        def best(function):
            readings = []
            for _ in range(30):
                start = time.perf_counter()
                for _ in range(300):
                    function()
                readings.append((time.perf_counter() - start) / 300)
            return min(readings) * 1e6
        out = tessera.torch.linear(x, weight, bias)
        _run.forget()
        tessera.torch.linear(x, weight, bias)
        bound, = _run._bound.values()
        operands = bound.addresses(*bound.pick((x.data_ptr(), weight.data_ptr(), bias.data_ptr(),
                                                0, 0, out.data_ptr())))
        launch = best(lambda: _run._launch(bound.address, operands, bound.count, None))
        function = best(lambda: tessera.torch.linear(x, weight, bias)) - launch
        op = best(lambda: torch.ops.tessera.linear(x, weight, bias)) - launch
        theirs = best(lambda: functional.linear(x, weight, bias))
        print(f"host time beyond the launch ({launch:.1f} us): tessera.torch.linear "
              f"{function:.1f} us, torch.ops.tessera.linear {op:.1f} us; "
              f"torch.nn.functional.linear takes {theirs:.1f} us")
        self.assertLess(function, 75)


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
class Cuda(Case):
    def layer(self, dtype=torch.bfloat16):
        return tessera.torch.Linear(512, 768, device="cuda", dtype=dtype, activation="gelu")

    def test_streams(self):
        """Work on a stream of its own sees what that stream wrote before."""
        layer, stream = self.layer().requires_grad_(False), torch.cuda.Stream()
        x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
        expected = layer(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            late = torch.zeros_like(x)
            torch.cuda._sleep(20_000_000)
            late.copy_(x)
            result = layer(late)
        stream.synchronize()
        self.assertTrue(torch.equal(result, expected))

    def test_graph(self):
        """A captured graph multiplies what its input holds at each replay."""
        layer = self.layer().requires_grad_(False)
        for rows in (1, 16, 512):
            x = torch.randn(rows, 512, device="cuda", dtype=torch.bfloat16)
            tessera.torch.softmax(layer(x))  # a capture cannot load kernels
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = tessera.torch.softmax(layer(x))
            for _ in range(3):
                x.normal_()
                graph.replay()
                expected = tessera.torch.softmax(layer(x))
                self.assertTrue(torch.equal(result, expected), f"{rows} rows")

    def test_gradients(self):
        layer = self.layer()
        x = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        layer(x).sum().backward()
        exact = [wide(t).requires_grad_(True) for t in (x, layer.weight, layer.bias)]
        functional.gelu(functional.linear(*exact)).sum().backward()
        for leaf, true in zip((x, layer.weight, layer.bias), exact):
            self.assertLess(tessera.torch.worst_error(leaf.grad, true.grad), 2e-2)

    def test_compile(self):
        layer = self.layer().requires_grad_(False)
        x = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)
        for mode in ("default", "reduce-overhead"):
            try:
                compiled = torch.compile(layer, fullgraph=True, mode=mode)
                results = [compiled(x).clone() for _ in range(3)]
            except RuntimeError as error:
                if "triton" in str(error).lower():
                    self.skipTest("torch.compile needs triton on a GPU, which is not installed")
                raise
            self.assertTrue(all(torch.equal(result, layer(x)) for result in results))

    def test_workspace_is_pytorchs(self):
        """A kernel that adds slices of K has a workspace, which PyTorch's allocator gives."""
        x, weight = (torch.randn(16, 16384, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        tessera.torch.linear(x, weight)
        bound = list(_run._bound.values())[-1]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = tessera.torch.linear(x, weight)
        grown = torch.cuda.max_memory_allocated() - before
        self.assertGreaterEqual(grown, bound.workspace_bytes + out.nbytes)


if __name__ == "__main__":
    assert _ops
    unittest.main(verbosity=1)
