"""Convolutions and transposed convolutions of tessera.torch drawn at random: every stride, padding,
dilation, output padding, group, type and memory, forward and gradients, beside PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run. TESSERA_TEST_PROBLEMS=N draws so many of each kind.
"""
import os
import unittest
import warnings

from test_torch import DEVICES, SEED, wide
from test_torch_conv import FP32, Convolved, rounding

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.utils import prune

import tessera.torch
from tessera.torch import _run

PROBLEMS = int(os.environ.get("TESSERA_TEST_PROBLEMS", 60))
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float16)


def setUpModule():
    warnings.filterwarnings("ignore", "Using padding='same' with even kernel")
    print(f"test_torch_conv_random: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, "
          f"{DEVICES}")


def last(tensor):
    """The tensor with the channels innermost in memory, of any number of dimensions."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


class Drawn(Convolved):
    def each(self, low, high, ndim):
        return [self.random.randint(low, high) for _ in range(ndim)]

    def draw(self, transposed):
        """A problem by shapes and options."""
        ndim = self.random.randint(1, 3)
        groups = self.random.choice((1, 1, 1, 2, 3, 8))
        filter, dilation = self.each(1, 4, ndim), self.each(1, 3, ndim)
        stride, size = self.each(1, 3, ndim), self.each(1, 14 if ndim < 3 else 6, ndim)
        extents = [d * (f - 1) + 1 for d, f in zip(dilation, filter)]
        padding = [self.random.randint(0, e + 3 * (self.random.random() < 0.3)) for e in extents]
        how = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        if transposed:
            more = [self.random.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)]
            how["output_padding"] = more
            most = [((n - 1) * s + e - 1 + m) // 2
                    for n, s, e, m in zip(size, stride, extents, more)]
            how["padding"] = [min(p, m) for p, m in zip(padding, most)]
        elif self.random.random() < 0.25:
            how.update(stride=1, padding="same")
        else:
            size = [max(n, e - 2 * p) for n, e, p in zip(size, extents, padding)]
        c, k = (groups * self.random.choice((1, 1, 3, 8, 16)) for _ in range(2))
        shape = (c, k // groups, *filter) if transposed else (k, c // groups, *filter)
        return dict(x=(self.random.randint(1, 3), c, *size), w=shape,
                    bias=k if self.random.random() < 0.5 else 0, how=how,
                    dtype=self.random.choice(DTYPES), last=self.random.random() < 0.6,
                    single=self.random.random() < 0.1)

    def tensors(self, problem, device):
        generator = torch.Generator().manual_seed(self.random.randrange(2**31))
        made = [torch.randn(shape, generator=generator).to(problem["dtype"])
                for shape in (problem["x"], problem["w"], (problem["bias"],))]
        if problem["last"]:
            made[:2] = map(last, made[:2])
        if problem["single"]:
            made[0] = made[0][0]
        x, w, bias = (t.to(device).requires_grad_() for t in made)
        return (x, w, bias) if problem["bias"] else (x, w)

    def check(self, ours, theirs, tensors, dtype, how, note):
        """The result and all gradients. A sum in fp32 has a rounding of the sizes' sum for each of
        its products, which are what the same call gives for sizes; a result has one more."""
        exact = [wide(t).requires_grad_() for t in tensors]
        sizes = [wide(t).abs().requires_grad_() for t in tensors]
        result, expected, size = ours(*tensors, **how), theirs(*exact, **how), theirs(*sizes, **how)
        grad = torch.randn(result.shape, device=result.device).to(dtype)
        found = [result, *torch.autograd.grad(result, tensors, grad)]
        true = [expected, *torch.autograd.grad(expected, exact, wide(grad))]
        each = [size, *torch.autograd.grad(size, sizes, wide(grad).abs())]
        terms = max(tensors[1].numel(), grad[:, 0].numel() if grad.dim() > 1 else 0) + 10
        for what, a, b, bound in zip(("y", "dx", "dw", "db"), found, true, each):
            self.assertEqual(a.dtype, dtype, note)
            slack = (1.2 * min(terms, 4000) * FP32 + 2 * rounding(dtype)) * (bound.detach() + 1e-3)
            self.assert_close(a.detach(), b.detach(), slack, f"{what} of {note}")

    def run_all(self, transposed, ours, theirs):
        problems = [self.draw(transposed) for _ in range(PROBLEMS)]
        for device in DEVICES:
            for i, problem in enumerate(problems):
                ndim = len(problem["w"]) - 2
                note = f"{problem} on {device}"
                with self.subTest(i=i, problem=note):
                    self.check(ours[ndim - 1], theirs[ndim - 1], self.tensors(problem, device),
                               problem["dtype"], problem["how"], note)

    def test_convolutions(self):
        self.run_all(False, (tessera.torch.conv1d, tessera.torch.conv2d, tessera.torch.conv3d),
                     (functional.conv1d, functional.conv2d, functional.conv3d))

    def test_transposed_convolutions(self):
        self.run_all(True, (tessera.torch.conv_transpose1d, tessera.torch.conv_transpose2d,
                            tessera.torch.conv_transpose3d),
                     (functional.conv_transpose1d, functional.conv_transpose2d,
                      functional.conv_transpose3d))

    def test_padding_modes(self):
        """Modes other than zeros pad first, as PyTorch does."""
        for device in DEVICES:
            for mode in ("reflect", "replicate", "circular"):
                for theirs, shape in ((nn.Conv1d(4, 6, 3, 2, 2, padding_mode=mode), (2, 4, 9)),
                                      (nn.Conv2d(4, 6, (3, 2), padding="same", padding_mode=mode),
                                       (2, 4, 7, 8)),
                                      (nn.Conv3d(4, 6, 3, 1, 1, groups=2, padding_mode=mode),
                                       (1, 4, 4, 5, 6))):
                    ours = getattr(tessera.torch, type(theirs).__name__)(
                        4, 6, theirs.kernel_size, theirs.stride, theirs.padding, 1, theirs.groups,
                        padding_mode=mode).to(device)
                    ours.load_state_dict(theirs.state_dict())
                    x = torch.randn(shape, device=device)
                    with self.subTest(mode=mode, device=device, shape=shape):
                        torch.testing.assert_close(ours(x).double(),
                                                   theirs.double().to(device)(x.double()),
                                                   rtol=1e-4, atol=1e-4)


class Empty(Convolved):
    def test_results_without_elements(self):
        """PyTorch returns an empty tensor, whose gradients are zeros."""
        for device in DEVICES:
            for size, filter, padding in (((8,), (5,), 6), ((8, 7), (5, 5), (6, 1)),
                                          ((1, 2, 3), (2, 2, 2), (1, 0, 0))):
                for memory in (lambda t: t, last):
                    ndim = len(size)
                    x, w = (memory(torch.randn(shape, device=device)).requires_grad_()
                            for shape in ((2, 4, *size), (4, 3, *filter)))
                    bias = torch.randn(3, device=device, requires_grad=True)
                    y = getattr(tessera.torch, f"conv_transpose{ndim}d")(x, w, bias,
                                                                         padding=padding)
                    expected = [(n - 1) + (f - 1) + 1 - 2 * p for n, f, p in zip(
                        size, filter, (padding,) * ndim if isinstance(padding, int) else padding)]
                    self.assertEqual(y.shape, (2, 3, *expected))
                    self.assertEqual(y.numel(), 0)
                    grads = torch.autograd.grad(y.sum(), (x, w, bias))
                    for grad, tensor in zip(grads, (x, w, bias)):
                        self.assertEqual(grad.shape, tensor.shape)
                        self.assertEqual(float(grad.abs().sum()), 0)

    def test_of_modules_and_of_no_image(self):
        layer = tessera.torch.ConvTranspose2d(4, 3, 5, padding=(6, 1))
        self.assertEqual(layer(torch.randn(2, 4, 8, 7)).shape, (2, 3, 0, 9))
        self.assertEqual(layer(torch.randn(4, 8, 7)).shape, (3, 0, 9))
        x = torch.randn(0, 4, 8, 7, requires_grad=True)
        y = tessera.torch.conv_transpose2d(x, layer.weight)
        y.sum().backward()
        self.assertEqual((y.shape, x.grad.shape), ((0, 3, 12, 11), x.shape))
        self.assertEqual(float(layer.weight.grad.abs().sum()), 0)


class ChannelsLast(Convolved):
    """In and out without a copy: by strides, and by what each launch copies."""

    LAYERS = ((nn.Conv2d, (8, 6, 3, 2, 1)), (nn.Conv2d, (8, 8, 3, 1, 1, 1, 8)),
              (nn.Conv2d, (8, 6, 4, 1, "same")), (nn.Conv2d, (1, 6, 3)),
              (nn.ConvTranspose2d, (8, 6, 3, 2, 1, 1)), (nn.ConvTranspose2d, (8, 6, 2, 2)),
              (nn.Conv3d, (8, 6, 3, 1, 1)), (nn.Conv3d, (8, 6, 2, 2, 0, 1, 2)),
              (nn.ConvTranspose3d, (8, 6, 2, 2)), (nn.ConvTranspose3d, (8, 6, 3, 2, 1, 1)))

    def assert_last(self, tensor):
        self.assertTrue(tensor.is_contiguous(memory_format=LAST[tensor.dim()]), tensor.stride())
        self.assertEqual(tensor.stride(1), 1)

    def test_no_copies(self):
        for device in DEVICES:
            for kind, arguments in self.LAYERS:
                layer = getattr(tessera.torch, kind.__name__)(*arguments).to(device)
                size = (2, arguments[0], 5, 6, 7)[:layer.weight.dim()]
                memory = LAST[layer.weight.dim()]
                for parameter in layer.parameters():
                    if parameter.dim() > 1:
                        parameter.data = torch.empty_like(
                            parameter, memory_format=memory).copy_(parameter)
                x = torch.empty(size, memory_format=memory, device=device).normal_()
                with self.subTest(layer=str(layer), device=device):
                    _run.forget()
                    y = layer(x.requires_grad_())
                    grads = torch.autograd.grad(y.square().sum(), (x, layer.weight))
                    copies = [copy for bound in _run._bound.values() for copy in bound.copies]
                    self.assertEqual(len(_run._bound), 3)
                    self.assertEqual([copy for copy in copies if copy is not None], [])
                    for tensor in (y, *grads):
                        self.assert_last(tensor)

    def test_function(self):
        for size in ((2, 3, 7), (2, 3, 5, 7), (2, 3, 4, 5, 7), (2, 1, 5, 7), (2, 3, 1, 1)):
            x = torch.randn(size)
            y = tessera.torch.channels_last(x)
            self.assertTrue(torch.equal(x, y))
            self.assertEqual(y.stride(1), 1)
            self.assertTrue(y.movedim(1, -1).is_contiguous())
            self.assertIs(tessera.torch.channels_last(y), y)
        model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.ConvTranspose1d(4, 5, 2),
                              nn.Flatten(1), nn.Linear(40, 2))
        expected, weights = model(torch.ones(2, 3, 9)), list(model.parameters())
        self.assertIs(tessera.torch.channels_last(model), model)
        self.assertTrue(all(a is b for a, b in zip(model.parameters(), weights)))
        ours, report = tessera.torch.optimize(model, pack=False)
        self.assertEqual(ours[0](torch.ones(2, 3, 9)).stride(1), 1)
        torch.testing.assert_close(ours(torch.ones(2, 3, 9)), expected)

    def test_computed_weights(self):
        """Where the weight is computed, what it is computed of is laid, or an error says so."""
        x = torch.randn(1, 8, 6, 6)
        parametrizations = torch.nn.utils.parametrizations
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            makers = {"parametrized": parametrizations.weight_norm,
                      "old": torch.nn.utils.weight_norm, "spectral": parametrizations.spectral_norm,
                      "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5)}
            models = {name: nn.Sequential(nn.Conv2d(8, 4, 1), make(nn.Conv2d(4, 12, 3)))
                      for name, make in makers.items()}
        for name, model in models.items():
            state = {key: value.clone() for key, value in model.state_dict().items()}
            lost = name in ("parametrized", "old")
            with self.subTest(name=name):
                if lost:
                    with self.assertRaisesRegex(tessera.Error, "the weight of 1 is computed anew"):
                        tessera.torch.channels_last(model)
                else:
                    tessera.torch.channels_last(model)
                    self.assert_last(model(x))
                    self.assert_last(model[1].weight)
                    model.eval()
                self.assert_last(model[0].weight)
                if name != "spectral":  # which iterates in each call
                    self.assertTrue(all(torch.equal(value, state[key])
                                        for key, value in model.state_dict().items()))
        torch.nn.utils.parametrize.remove_parametrizations(models["parametrized"][1], "weight")
        self.assert_last(tessera.torch.channels_last(models["parametrized"])[1].weight)

    def test_single_channel_by_its_stride(self):
        x, w = torch.randn(2, 1, 5, 6), torch.randn(4, 1, 3, 3)
        self.assertTrue(tessera.torch.conv2d(x, w).is_contiguous())
        x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
        self.assert_last(tessera.torch.conv2d(x, w))
        self.assert_last(functional.conv2d(x, w))


class Compiled(Convolved):
    def test_transposed(self):
        layer = tessera.torch.ConvTranspose2d(4, 6, 3, 2, 4, 1)
        compiled = torch.compile(lambda x: layer(x * 2).square(), fullgraph=True,
                                 backend="aot_eager")
        x = torch.randn(2, 4, 8, 8, requires_grad=True)
        expected = layer(x * 2).square()
        torch.testing.assert_close(compiled(x), expected)
        wanted, = torch.autograd.grad(expected.sum(), x)
        got, = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(got, wanted)

    @unittest.skipIf("cuda" not in DEVICES, "there is no GPU")
    def test_graphs(self):
        for layer, size in ((tessera.torch.Conv2d(8, 16, 4, padding="same"), (2, 8, 9, 9)),
                            (tessera.torch.ConvTranspose3d(8, 16, 3, 2, 4, 1), (2, 8, 5, 6, 7))):
            layer = layer.cuda()
            x = torch.randn(size, device="cuda", requires_grad=True)
            both = lambda: torch.autograd.grad(layer(x).square().sum(), (x, layer.weight))
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                both()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = both()
            with torch.no_grad():
                x.copy_(torch.randn(size))
            graph.replay()
            for got, want in zip(captured, both()):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


if __name__ == "__main__":
    unittest.main(verbosity=1)
