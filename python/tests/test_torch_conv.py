"""Convolutions of tessera.torch against PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import copy
import unittest

from test_torch import ACTIVATIONS, DEVICES, SEED, Case, wide

import torch
import torch.nn.functional as functional
from torch import nn

import tessera.torch
from tessera.torch import _run

OURS = (tessera.torch.conv1d, tessera.torch.conv2d, tessera.torch.conv3d)
THEIRS = (functional.conv1d, functional.conv2d, functional.conv3d)
FORMATS = (torch.contiguous_format, torch.channels_last)
FP32, NARROW = torch.finfo(torch.float32).eps, {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def setUpModule():
    print(f"test_torch_conv: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def rounding(dtype):
    return NARROW.get(dtype, FP32)


class Convolved(Case):
    def bound(self, function, x, weight, bias, dtype, **how):
        """How far sums in fp32 may be from fp64: a rounding for each of the products, of the sum of
        their sizes; activations have a slope below 1.2; then one rounding of the result's type."""
        sizes = function(wide(x).abs(), wide(weight).abs(),
                         None if bias is None else wide(bias).abs(), **how)
        return (1.2 * (weight[0].numel() + 10) * FP32 + rounding(dtype)) * (sizes + 1e-3)

    def assert_conv(self, x, weight, bias=None, activation=None, **how):
        ours, theirs = OURS[weight.dim() - 3], THEIRS[weight.dim() - 3]
        for _ in range(2):
            result = ours(x, weight, bias, activation=activation, **how)
        self.assertEqual(result.dtype, x.dtype)
        expected = ACTIVATIONS[activation](theirs(wide(x), wide(weight), wide(bias), **how))
        self.assert_close(result, expected, self.bound(theirs, x, weight, bias, x.dtype, **how),
                          f"{tuple(x.shape)} {tuple(weight.shape)} {how} {activation} {x.dtype}")
        return result

    def compare(self, ours, theirs, *tensors):
        """Gradients beside PyTorch's in fp64: sums of at most `terms` products, of sums."""
        leaves = [t.detach().requires_grad_(True) for t in tensors]
        exact = [wide(t).requires_grad_(True) for t in tensors]
        result, expected = ours(*leaves), theirs(*exact)
        upstream = torch.randn(result.shape)
        mine = torch.autograd.grad(result, leaves, upstream, create_graph=True)
        true = torch.autograd.grad(expected, exact, wide(upstream), create_graph=True)
        terms = max(result.numel() // max(result.shape[1], 1), 400)
        for got, want in zip(mine, true):
            largest = float(want.detach().abs().max()) + 1
            error = float((got.double() - want).detach().abs().max())
            self.assertLess(error, terms * FP32 * largest, f"seed {SEED}")
        return mine, true, leaves, exact

    def shared(self, tensor):
        """Half of the time a tensor of that shape of which some dimensions have one element."""
        if self.random.random() < 0.5:
            return tensor
        one = tensor
        for axis in range(tensor.dim()):
            if self.random.random() < 0.4:
                one = one.narrow(axis, 0, 1)
        return one.expand(tensor.shape)

    def copies(self, function):
        """Which of x, w and y the first call of this kind copies."""
        _run.forget()
        function()
        return [tuple(copy is not None for copy in (*bound.copies, None, None, None)[:3])
                for bound in _run._bound.values()]


class Forward(Convolved):
    def test_random_shapes(self):
        for device in DEVICES:
            for i in range(18):
                ndim, groups = i % 3 + 1, self.random.choice((1, 1, 2, 3))
                pick = lambda low, high: [self.random.randint(low, high) for _ in range(ndim)]
                filter, dilation = pick(1, 3), pick(1, 2)
                padding = [self.random.randint(0, d * (f - 1) + 3 * (i % 4 == 0))
                           for f, d in zip(filter, dilation)]
                c, k = (groups * self.random.randint(1, 9) for _ in range(2))
                x = torch.randn(self.random.randint(1, 3), c, *pick(6, 12), device=device)
                weight = torch.randn(k, c // groups, *filter, device=device)
                bias = torch.randn(k, device=device) if self.random.random() < 0.5 else None
                if ndim == 2 and self.random.random() < 0.5:
                    x = x.to(memory_format=torch.channels_last)
                with self.subTest(i=i, device=device):
                    self.assert_conv(self.shared(x), self.shared(weight), bias, padding=padding,
                                     dilation=dilation, stride=pick(1, 3), groups=groups)

    def test_padding_of_the_filters_extent(self):
        for device in DEVICES:
            for memory in FORMATS:
                for groups in (1, 2, 6):
                    x, weight = (torch.randn(*shape, device=device).to(memory_format=memory)
                                 for shape in ((2, 6, 5, 4), (6, 6 // groups, 1, 3)))
                    for padding in ((1, 3), (2, 5), (7, 4)):
                        self.assert_conv(x, weight, torch.randn(6, device=device),
                                         padding=padding, groups=groups, stride=(1, 2))

    def test_activations(self):
        for activation in ACTIVATIONS:
            self.assert_conv(torch.randn(2, 4, 7, 6), torch.randn(5, 4, 3, 3), torch.randn(5),
                             activation)

    def test_types_and_formats(self):
        for device in DEVICES:
            for dtype in (torch.float16, torch.bfloat16, torch.float32):
                for memory in FORMATS:
                    x, weight = (torch.randn(*shape, device=device).to(dtype, memory_format=memory)
                                 for shape in ((2, 8, 9, 7), (6, 4, 3, 3)))
                    with self.subTest(dtype=dtype, memory=memory, device=device):
                        y = self.assert_conv(x, weight, torch.randn(6, device=device).to(dtype),
                                             groups=2, padding=1)
                        self.assertTrue(y.is_contiguous(memory_format=memory))

    def test_strings_and_images_without_a_batch(self):
        x, weight = torch.randn(2, 4, 8, 9), torch.randn(6, 4, 2, 3)
        self.assert_conv(x, weight, padding="same")
        self.assert_conv(x, weight, padding="valid", dilation=2)
        self.assert_conv(x[0], weight, torch.randn(6), padding=(1, 0))

    def test_no_images(self):
        y = tessera.torch.conv2d(torch.randn(0, 4, 8, 8), torch.randn(6, 4, 3, 3))
        self.assertEqual(y.shape, (0, 6, 6, 6))

    def test_autocast(self):
        layer = tessera.torch.Conv2d(4, 6, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(layer(torch.randn(2, 4, 8, 8)).dtype, torch.bfloat16)


class Memory(Convolved):
    """Nothing is copied but what the documentation says."""

    def setUp(self):
        super().setUp()
        self.x, self.w = torch.randn(2, 8, 9, 7), torch.randn(6, 8, 3, 3)
        self.last = self.x.to(memory_format=torch.channels_last)
        self.last_w = self.w.to(memory_format=torch.channels_last)

    def copied(self, x, w):
        return self.copies(lambda: self.assert_conv(x, w))[0]

    def test_alike(self):
        self.assertEqual(self.copied(self.x, self.w), (False, False, False))
        self.assertEqual(self.copied(self.last, self.last_w), (False, False, False))

    def test_one_of_them_last(self):
        self.assertEqual(self.copied(self.last, self.w), (False, True, False))
        self.assertEqual(self.copied(self.x, self.last_w), (True, False, False))
        self.assertEqual(self.copied(self.last, self.w[:, :, :1, :1]), (False, True, False))
        self.assertEqual(self.copied(self.last, self.w[:, :, :1, :1].contiguous()),
                         (False, False, False))

    def test_views(self):
        self.assertEqual(self.copied(self.x[:, 2:6, 1:8], self.w[:, :4]), (False, False, False))
        self.assertEqual(self.copied(self.last[:, 2:6, 1:8, ::2], self.last_w[:, :4]),
                         (False, False, False))
        self.assertEqual(self.copied(self.x[:1].expand(3, 8, 9, 7), self.w), (False,) * 3)
        self.assertEqual(self.copied(self.x[..., ::2], self.w), (True, False, False))
        self.assertEqual(self.copied(self.x[..., :1].expand(2, 8, 9, 7), self.w),
                         (True, False, False))

    def test_three_and_five_dimensions(self):
        sound = torch.randn(2, 30, 8).mT
        y = self.assert_conv(sound, torch.randn(6, 3, 8).mT)
        self.assertEqual(y.stride(1), 1)
        clip = torch.randn(1, 4, 5, 6, 7).to(memory_format=torch.channels_last_3d)
        y = self.assert_conv(clip, torch.randn(6, 4, 2, 3, 3))
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last_3d))


class Gradients(Convolved):
    def test_three_directions(self):
        for memory in FORMATS:
            for groups in (1, 3):
                for activation in (None, "relu", "gelu"):
                    how = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=groups)
                    with self.subTest(memory=memory, groups=groups, activation=activation):
                        self.compare(
                            lambda x, w, b: tessera.torch.conv2d(x, w, b, activation=activation,
                                                                 **how),
                            lambda x, w, b: ACTIVATIONS[activation](functional.conv2d(x, w, b,
                                                                                      **how)),
                            torch.randn(2, 6, 9, 8).to(memory_format=memory),
                            torch.randn(9, 6 // groups, 3, 3).to(memory_format=memory),
                            torch.randn(9))

    def test_padding_of_the_filters_extent(self):
        for memory in FORMATS:
            for groups in (1, 2, 6):
                how = dict(padding=(3, 5), stride=(2, 1), groups=groups)
                self.compare(lambda x, w: tessera.torch.conv2d(x, w, **how),
                             lambda x, w: functional.conv2d(x, w, **how),
                             torch.randn(2, 6, 5, 4).to(memory_format=memory),
                             torch.randn(6, 6 // groups, 1, 3).to(memory_format=memory))

    def test_results_that_are_written_into(self):
        """A ReLU in place follows a convolution of either memory, as torchvision's models have."""
        for memory in (torch.contiguous_format, torch.channels_last):
            x, w = (t.contiguous(memory_format=memory)
                    for t in (torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 3)))
            for ours, theirs in ((tessera.torch.conv2d, functional.conv2d),
                                 (lambda x, w: tessera.torch.conv_transpose2d(x, w.transpose(0, 1)),
                                  lambda x, w: functional.conv_transpose2d(x, w.transpose(0, 1)))):
                found = []
                for function, kind in ((ours, torch.float32), (theirs, torch.float64)):
                    leaves = [t.to(kind).requires_grad_() for t in (x, w)]
                    y = function(*leaves)
                    y.relu_()
                    found.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
                for one, other in zip(*found):
                    torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-3)

    def test_gradients_that_repeat(self):
        """A sum over pixels gives all of them one gradient, which PyTorch stores once."""
        losses = (lambda y: y.sum((2, 3)).square().sum(), lambda y: y.sum(3).square().sum(),
                  lambda y: y.sum((0, 3)).square().sum(), lambda y: y.sum(1).square().sum(),
                  lambda y: y.sum())
        for device in DEVICES:
            for filter, groups in ((1, 1), (1, 2), (1, 16), (3, 1), (3, 16)):
                ours = tessera.torch.Conv2d(16, 32, filter, groups=groups).to(device)
                theirs = copy.deepcopy(ours).double()
                for memory in FORMATS:
                    for i, loss in enumerate(losses):
                        x = torch.randn(2, 16, 7, 5, device=device).to(memory_format=memory)
                        mine, true = x.requires_grad_(), wide(x.detach()).requires_grad_()
                        got = torch.autograd.grad(loss(ours(mine)), [mine, *ours.parameters()])
                        y = functional.conv2d(true, theirs.weight, theirs.bias, groups=groups)
                        want = torch.autograd.grad(loss(y), [true, *theirs.parameters()])
                        with self.subTest(filter=filter, groups=groups, memory=memory, loss=i):
                            for a, b in zip(got, want):
                                self.assertLess(tessera.torch.worst_error(a, b), 1e-4,
                                                f"seed {SEED}")

    def test_one_and_three_dimensions(self):
        self.compare(lambda x, w: tessera.torch.conv1d(x, w, stride=3, padding="valid"),
                     lambda x, w: functional.conv1d(x, w, stride=3),
                     torch.randn(2, 6, 20), torch.randn(4, 6, 3))
        self.compare(lambda x, w: tessera.torch.conv3d(x, w, groups=2, padding=1),
                     lambda x, w: functional.conv3d(x, w, groups=2, padding=1),
                     torch.randn(1, 6, 4, 5, 6), torch.randn(4, 3, 3, 3, 2))

    def test_same_padding_of_an_even_filter(self):
        self.compare(lambda x, w: tessera.torch.conv2d(x, w, padding="same"),
                     lambda x, w: functional.conv2d(x, w, padding="same"),
                     torch.randn(2, 4, 6, 7), torch.randn(5, 4, 4, 2))

    def test_gradients_of_gradients(self):
        mine, true, leaves, exact = self.compare(
            lambda x, w: tessera.torch.conv2d(x, w, stride=2, padding=1),
            lambda x, w: functional.conv2d(x, w, stride=2, padding=1),
            torch.randn(2, 4, 7, 7), torch.randn(5, 4, 3, 3))
        seconds = torch.autograd.grad(sum(g.square().sum() for g in mine), leaves)
        wanted = torch.autograd.grad(sum(g.square().sum() for g in true), exact)
        for got, want in zip(seconds, wanted):
            self.assertLess(tessera.torch.worst_error(got, want), 1e-5, f"seed {SEED}")

    def test_directions_that_nobody_needs(self):
        x, weight = torch.randn(1, 4, 6, 6), torch.randn(5, 4, 3, 3, requires_grad=True)
        with torch.profiler.profile() as profile:
            tessera.torch.conv2d(x, weight).sum().backward()
        names = {event.key for event in profile.key_averages()}
        self.assertIn("tessera::conv_backward_weight", names)
        self.assertNotIn("tessera::conv_backward_data", names)
        self.assertNotIn("aten::convolution", names)


class Transposed(Convolved):
    OURS = (tessera.torch.conv_transpose1d, tessera.torch.conv_transpose2d,
            tessera.torch.conv_transpose3d)
    THEIRS = (functional.conv_transpose1d, functional.conv_transpose2d,
              functional.conv_transpose3d)

    def test_any_output_padding(self):
        for i in range(40):
            ndim, groups = i % 3 + 1, self.random.choice((1, 1, 2, 3))
            pick = lambda low, high: [self.random.randint(low, high) for _ in range(ndim)]
            filter, dilation, stride = pick(1, 3), pick(1, 4), pick(1, 3)
            more = [self.random.randint(0, max(d, s) - 1) for d, s in zip(dilation, stride)]
            sizes = pick(1, 5)
            most = [(n - 1) * s + d * (f - 1) + m for n, s, d, f, m in
                    zip(sizes, stride, dilation, filter, more)]
            padding = [self.random.randint(0, m // 2) for m in most]
            c, k = (groups * self.random.randint(1, 5) for _ in range(2))
            x = torch.randn(self.random.randint(1, 3), c, *sizes)
            tensors = [self.shared(x), torch.randn(c, k // groups, *filter)]
            if self.random.random() < 0.5:
                tensors.append(torch.randn(k))
            how = dict(stride=stride, padding=padding, output_padding=more, groups=groups,
                       dilation=dilation)
            with self.subTest(i=i, x=tuple(x.shape), filter=filter, **how):
                ours, theirs = self.OURS[ndim - 1], self.THEIRS[ndim - 1]
                self.compare(lambda *t: ours(*t, **how), lambda *t: theirs(*t, **how), *tensors)
                result, expected = ours(*tensors, **how), theirs(*map(wide, tensors), **how)
                torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)

    def test_modules(self):
        for theirs, shape, size in (
                (nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), (2, 4, 9), None),
                (nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2), (4, 5, 6), (10, 12)),
                (nn.ConvTranspose3d(4, 6, 2, dilation=3, output_padding=2), (2, 4, 3, 2, 4), None)):
            ours = getattr(tessera.torch, type(theirs).__name__)(
                theirs.in_channels, theirs.out_channels, theirs.kernel_size, theirs.stride,
                theirs.padding, theirs.output_padding, theirs.groups, dilation=theirs.dilation)
            ours.load_state_dict(theirs.state_dict())
            x = torch.randn(shape)
            torch.testing.assert_close(ours(x, size), theirs(x, size), rtol=1e-4, atol=1e-4)

    def test_autocast(self):
        layer = tessera.torch.ConvTranspose2d(4, 6, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(layer(torch.randn(2, 4, 8, 8)).dtype, torch.bfloat16)

    def test_sentences(self):
        x, weight, conv = torch.randn(2, 4, 8), torch.randn(4, 3, 5), tessera.torch.conv_transpose1d
        self.assert_error("output_padding must be at least 0 and below the stride 2 or the "
                          "dilation 1, got 2", lambda: conv(x, weight, stride=2, output_padding=2))
        self.assert_error("conv_transpose1d: the result would have the spatial size (-2,); no size "
                          "can be below 0", lambda: conv(x, weight, padding=7))
        self.assert_error("conv_transpose1d: bias must have the shape (3,), got (4,)",
                          lambda: conv(x, weight, torch.randn(4)))
        self.assert_error("conv_transpose1d: the input must have 2 or 3 dimensions and the weight "
                          "3, got 1 and 3", conv, x[0, 0], weight)


class Compile(Convolved):
    def test_operators_obey_pytorchs_rules(self):
        ops, how = torch.ops.tessera, ([2, 1], [1, 0, 1, 1], [1, 1], 2)
        for memory in FORMATS:
            x = torch.randn(2, 4, 8, 7).to(memory_format=memory).requires_grad_()
            w = torch.randn(6, 2, 3, 3).to(memory_format=memory).requires_grad_()
            y = torch.randn(2, 6, 4, 6).to(memory_format=memory).requires_grad_()
            for op, arguments in (
                    (ops.conv, (x, w, torch.randn(6, requires_grad=True), *how, "relu")),
                    (ops.conv_backward_data, (y, w, [8, 7], *how)),
                    (ops.conv_backward_weight, (x, y, [3, 3], *how))):
                with self.subTest(op=str(op), memory=memory):
                    torch.library.opcheck(op.default, arguments)

    def test_whole_graph(self):
        layer = tessera.torch.Conv2d(4, 6, 3, padding=1, activation="silu")
        compiled = torch.compile(lambda x: layer(x * 2).mean((2, 3)), fullgraph=True)
        x = torch.randn(2, 4, 8, 8, requires_grad=True)
        expected = layer(x * 2).mean((2, 3))
        torch.testing.assert_close(compiled(x), expected)
        wanted, = torch.autograd.grad(expected.square().sum(), x)
        got, = torch.autograd.grad(compiled(x).square().sum(), x)
        torch.testing.assert_close(got, wanted)


class Bottleneck(nn.Module):
    """ResNet-50's block: 1x1, 3x3, 1x1, with batch norms, and a shortcut."""

    def __init__(self, c, width, stride):
        super().__init__()
        out = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(c, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Sequential(nn.Conv2d(c, out, 1, stride, bias=False),
                                      nn.BatchNorm2d(out))

    def forward(self, x):
        return functional.relu(self.layers(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """MobileNetV3's block: expansion, a depthwise layer, squeeze and excitation, projection."""

    def __init__(self, c, expanded, filter):
        super().__init__()
        squeezed = expanded // 4
        self.expand = nn.Sequential(nn.Conv2d(c, expanded, 1, bias=False),
                                    nn.BatchNorm2d(expanded), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(expanded, expanded, filter, padding=filter // 2, groups=expanded,
                      bias=False), nn.BatchNorm2d(expanded), nn.Hardswish())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(expanded, squeezed, 1), nn.ReLU(),
            nn.Conv2d(squeezed, expanded, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(expanded, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Optimize(Convolved):
    def check(self, model, x, layers):
        """Outputs and gradients of all parameters, beside PyTorch in fp64, as exact as PyTorch in
        fp32 but for a factor: the block's sums differ in their order alone."""
        exact, theirs = copy.deepcopy(model).double(), copy.deepcopy(model)
        ours, report = tessera.torch.optimize(model, example=x)
        self.assertEqual(sum(bool(layer.problem) for layer in report), layers, str(report))
        outputs = [net(inputs) for net, inputs in ((ours, x), (theirs, x), (exact, wide(x)))]
        upstream = torch.randn(x.shape[0], *outputs[0].shape[1:])
        for output in outputs:
            output.backward(upstream.to(output.dtype))
        pairs = [outputs] + list(zip(*[[p.grad for p in net.parameters()]
                                       for net in (ours, theirs, exact)]))
        for mine, other, true in pairs:
            error = tessera.torch.worst_error(mine.detach(), true.detach())
            limit = 8 * tessera.torch.worst_error(other.detach(), true.detach()) + 16 * FP32
            self.assertLess(error, limit, f"seed {SEED}")

    def test_bottleneck_of_resnet50(self):
        for memory in FORMATS:
            block = Bottleneck(64, 16, 2).to(memory_format=memory)
            self.check(block, torch.randn(2, 64, 14, 14).to(memory_format=memory), 4)

    def test_block_of_mobilenet_v3(self):
        for memory in FORMATS:
            block = InvertedResidual(40, 120, 5).to(memory_format=memory)
            self.check(block, torch.randn(2, 40, 14, 14).to(memory_format=memory), 5)

    def test_report(self):
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(),
                              nn.Conv2d(8, 8, 3, groups=8), nn.Conv1d(4, 4, 1).double(),
                              nn.ConvTranspose2d(8, 4, 2))
        ours, report = tessera.torch.optimize(copy.deepcopy(model))
        self.assertEqual([layer.name for layer in report], ["0", "2", "3", "4"])
        self.assertEqual(
            report[0].problem, "conv direction=forward n=1 c=3 k=8 h=56 w=56 y=3 x=3 pad_h=1 "
            "pad_w=1 layout=nchw epilogue=bias+relu")
        self.assertEqual(report[1].note,
                         "chosen for an image of 56 x 56, because there is no example")
        self.assertIn("float64", report[2].note)
        self.assertTrue(str(report).endswith("3 of 4 modules were replaced"))
        self.assertIs(type(ours[0]), tessera.torch.Conv2d)
        self.assertEqual(list(ours.state_dict()), list(model.state_dict()))

    def test_modules(self):
        for theirs, shape in ((nn.Conv1d(4, 6, 3, 2, 1), (2, 4, 9)),
                              (nn.Conv2d(4, 6, 3, padding="same", dilation=2), (2, 4, 9, 8)),
                              (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (4, 9, 8)),
                              (nn.Conv3d(4, 6, 2, groups=2, bias=False), (2, 4, 3, 5, 6))):
            ours, report = tessera.torch.optimize(copy.deepcopy(theirs), example=torch.randn(shape))
            self.assertEqual(type(ours), getattr(tessera.torch, type(theirs).__name__))
            self.assertTrue(report.agrees, str(report))
            x = torch.randn(shape)
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


class Refusals(Convolved):
    def test_sentences(self):
        x, weight, conv = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), tessera.torch.conv2d
        self.assert_error("x has the type float64, which Tessera does not know; convert it with "
                          ".float()", conv, x.double(), weight.double())
        self.assert_error("x has 4 channels, and w has 4 in each of 2 groups, which are 8; the two "
                          "must be equal", lambda: conv(x, weight, groups=2))
        self.assert_error("conv2d: the input must have 3 or 4 dimensions and the weight 4, got 2 "
                          "and 4", conv, x[0, 0], weight)
        self.assert_error("stride must be 1 number or 2, got 3",
                          lambda: conv(x, weight, stride=(1, 1, 1)))
        self.assert_error("padding 'same' is for a stride of 1, got 2",
                          lambda: conv(x, weight, padding="same", stride=2))
        self.assert_error("padding must be numbers, 'same' or 'valid', got 'full'",
                          lambda: conv(x, weight, padding="full"))
        self.assert_error("the filter spans 3 elements of h, but the padded image has 2", conv,
                          x[:, :, :2], weight)
        self.assert_error("bias must have the shape (6,) and the stride 1, got (5,) and (1,)", conv,
                          x, weight, torch.randn(5))
        self.assert_error("the activation must be one of relu, gelu, gelu_tanh, silu, sigmoid, "
                          "tanh, got 'swish'", lambda: tessera.torch.Conv2d(
                              4, 4, 3, activation="swish"))


    def test_tensors_of_other_dimensions(self):
        """The operators say what they need, whatever the tensors are, with memory or not."""
        ops, how = torch.ops.tessera, ([1, 1], [0, 0, 0, 0], [1, 1], 1)
        for device in ("cpu", "meta"):
            x, w = torch.randn(2, 4, 8, 8, device=device), torch.randn(6, 4, 3, 3, device=device)
            y = torch.randn(2, 6, 6, 6, device=device)
            for rank in (0, 1, 3, 5):
                odd = torch.zeros((2,) * rank, device=device)
                text = f"must have 4 dimensions, 2 of them spatial, got {rank}"
                for op, arguments, name in (
                        (ops.conv, (odd, w, None), "x"), (ops.conv, (x, odd, None), "w"),
                        (ops.conv_backward_data, (odd, w, [8, 8]), "grad_out"),
                        (ops.conv_backward_data, (y, odd, [8, 8]), "w"),
                        (ops.conv_backward_weight, (odd, y, [3, 3]), "x"),
                        (ops.conv_backward_weight, (x, odd, [3, 3]), "grad_out")):
                    self.assert_error(f"{name} {text}", lambda: op(*arguments, *how))
            self.assert_error("the padding must have 4 numbers with 2 spatial dimensions, got 3",
                              lambda: ops.conv(x, w, None, [1, 1], [0, 0, 0], [1, 1], 1))
            self.assert_error("a convolution has 1 to 3 spatial dimensions, got a stride of 0 "
                              "numbers", lambda: ops.conv(x, w, None, [], [], [], 1))
        self.assert_error("bias must have the shape (6,) and the stride 1, got () and ()",
                          lambda: ops.conv(torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3),
                                           torch.tensor(1.0), *how))


if __name__ == "__main__":
    unittest.main(verbosity=1)
