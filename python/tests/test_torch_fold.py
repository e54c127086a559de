"""Batch norms that optimize(model) leaves to the convolution before them.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import copy
import io
import unittest
from unittest import mock

from test_torch import DEVICES, SEED, Case, wide

import torch
import torch.nn.functional as functional
from torch import nn

import tessera.torch
from tessera.torch import _fold

optimize = tessera.torch.optimize
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
SIZES = ((2, 8, 19), (2, 8, 9, 7), (1, 8, 5, 6, 7))


def setUpModule():
    torch.backends.cudnn.allow_tf32 = False  # optimize() compares with PyTorch
    print(f"test_torch_fold: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def random_norm(norm):
    """With parameters and statistics as a trained one has."""
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            if tensor is not None:
                tensor.copy_(torch.randn(tensor.shape) / 2 + 0.5)
        if norm.running_var is not None:
            norm.running_var.copy_(torch.rand(norm.running_var.shape) + 0.5)
    return norm


def model_of(ndim, transposed=False, activation=nn.ReLU, bias=True, **norm):
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{ndim}d")
    layers = [kind(8, 12, 3, 2, 1, groups=2, bias=bias), random_norm(NORMS[ndim - 1](12, **norm))]
    layers += [] if activation is None else [activation()]
    return nn.Sequential(*layers).eval().requires_grad_(False)


class Fold(Case):
    def passes(self, function, *arguments):
        """How often batch norms and activations of PyTorch run in a call."""
        counts = {"norm": 0, "activation": 0}

        def counted(name, original):
            def call(*given, **named):
                counts[name] += 1
                return original(*given, **named)
            return call
        with mock.patch.object(nn.functional, "batch_norm",
                               counted("norm", functional.batch_norm)), \
                mock.patch.object(nn.functional, "relu",
                                  counted("activation", functional.relu)), torch.no_grad():
            result = function(*arguments)
        return counts["norm"], counts["activation"], result

    def assert_near(self, got, theirs, x):
        expected = copy.deepcopy(theirs).double()(wide(x))
        unit = torch.finfo(got.dtype).eps
        size = float(expected.abs().max())
        self.assertLess(float((got.double() - expected).abs().max()), 60 * unit * size,
                        f"seed {SEED}")

    def test_all_layers(self):
        for device in DEVICES:
            for ndim in (1, 2, 3):
                for transposed in (False, True):
                    for bias in (False, True):
                        for options in ({}, {"affine": False}, {"eps": 0.1}):
                            theirs = model_of(ndim, transposed, bias=bias, **options).to(device)
                            x = torch.randn(SIZES[ndim - 1], device=device)
                            ours, report = optimize(copy.deepcopy(theirs), x)
                            with self.subTest(layer=str(theirs[0]), norm=str(theirs[1])):
                                self.assertTrue(report.agrees, str(report))
                                norms, activations, y = self.passes(ours, x)
                                self.assertEqual((norms, activations), (0, int(transposed)))
                                self.assertTrue(report[0].norm)
                                self.assert_near(y, theirs, x)

    def test_types_memory_and_activations(self):
        for device in DEVICES:
            for dtype in (torch.float16, torch.bfloat16, torch.float32):
                for kind in (nn.ReLU, nn.SiLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Hardswish, None):
                    theirs = model_of(2, activation=kind).to(device, dtype,
                                                             memory_format=torch.channels_last)
                    if self.random.random() < 0.5:
                        theirs[1].float()
                    x = torch.randn(SIZES[1], device=device).to(
                        dtype, memory_format=torch.channels_last)
                    ours, report = optimize(copy.deepcopy(theirs), x)
                    with self.subTest(dtype=dtype, activation=kind):
                        norms, _, y = self.passes(ours, x)
                        self.assertEqual(norms, 0)
                        self.assertEqual(y.dtype, dtype)
                        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
                        self.assert_near(y, theirs, x)
                        wanted = None if kind in (nn.Hardswish, None) else kind.__name__.lower()
                        self.assertEqual(report[0].activation, wanted)

    def test_changes_are_seen(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        ours(x)

        def each(model):
            yield model[1].running_mean.add_(1)
            yield model[1].running_var.mul_(2)
            yield model[1].weight.mul_(-1)
            yield model[0].weight.normal_()
            yield model[0].bias.add_(1)
            model[1].eps = 0.5
            yield None
            model[0].weight.data.mul_(2)
            if isinstance(model[0], tessera.torch.Conv2d):
                model[0].unfold()
            yield None
            yield model.load_state_dict(model_of(2).state_dict())
            model[0].weight = nn.Parameter(torch.ones(12, 4, 3, 3), requires_grad=False)
            yield None
            model.train()
            model(x * 3 + 1)
            model.eval()
            yield None
            for mode in (torch.no_grad, torch.inference_mode):  # statistics anew
                with mode():
                    model[1].reset_running_stats()
                    model(x)
                    model.train()
                    model(x * 5 + 1)
                    model.eval()
                yield None
        for step, _ in enumerate(zip(each(ours), each(theirs))):
            theirs.load_state_dict(ours.state_dict())
            with self.subTest(step=step):
                norms, _, y = self.passes(ours, x)
                self.assertEqual(norms, 0)
                self.assert_near(y, theirs, x)

    def test_memory_stays(self):
        """What a CUDA graph reads is written anew, not replaced, in whatever mode."""
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours = copy.deepcopy(theirs)
        with torch.inference_mode():
            optimize(ours)
        kept = ours[0]._folded.of(ours[1])
        weight, bias = kept.weight, kept.bias
        for change in (lambda: ours[1].running_mean.add_(1), lambda: ours[0].weight.mul_(2),
                       lambda: (ours[0].weight.data.add_(1), ours[0].unfold()),
                       lambda: ours.train()(x)):
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    change()
                    y = ours.eval()(x)
                theirs.load_state_dict(ours.state_dict())
                self.assert_near(y, theirs, x)
                self.assertIs(ours[0]._folded.of(ours[1]), kept)
                self.assertTrue(kept.weight is weight and kept.bias is bias)
        ours.to(memory_format=torch.channels_last)
        self.assert_near(ours(x), theirs, x)
        self.assertIsNot(kept.weight, weight)
        self.assertEqual(kept.weight.stride(), ours[0].weight.stride())

    def test_layer_before_two_norms(self):
        conv, x = model_of(2)[0], torch.randn(SIZES[1])
        theirs = nn.ModuleList([nn.Sequential(conv, random_norm(nn.BatchNorm2d(12)))
                                for _ in range(2)]).eval().requires_grad_(False)
        ours, report = optimize(copy.deepcopy(theirs))
        self.assertEqual(report.kept, [])
        self.assertIs(ours[0][0], ours[1][0])
        with mock.patch.object(_fold.Folded, "make", autospec=True,
                               side_effect=_fold.Folded.make) as make:
            for _ in range(2):
                for mine, other in zip(ours, theirs):
                    self.assertEqual(self.passes(mine, x)[0], 0)
                    self.assert_near(mine(x), other, x)
            self.assertEqual(make.call_count, 0)
            ours[0][0].unfold()
            for mine in (*ours, *ours):
                mine(x)
            self.assertEqual(make.call_count, 2)
            make.reset_mock()  # which holds the norms
        ours[0][1] = random_norm(nn.BatchNorm2d(12)).eval().requires_grad_(False)
        theirs[0][1] = copy.deepcopy(ours[0][1])
        self.assert_near(ours[0](x), theirs[0], x)
        self.assertEqual(len(ours[0][0]._folded.by_norm), 2)

    def test_shallow_copies(self):
        """A copy that shares the table of folded weights writes none of the other layer's."""
        ours, x = optimize(model_of(2))[0], torch.randn(SIZES[1])
        other = copy.copy(ours)
        other._modules = {"0": copy.copy(ours[0]), "1": ours[1]}
        other[0]._parameters = copy.deepcopy(ours[0]._parameters)
        other[0].weight.mul_(2)
        expected, twice = ours(x), other(x)
        self.assertIsNot(other[0]._folded, ours[0]._folded)
        self.assertFalse(torch.allclose(expected, twice))
        self.assertTrue(torch.equal(ours(x), expected))

    def test_plain_attributes(self):
        """Tensors that are no parameters and no buffers of their modules."""
        for at, name in ((0, "weight"), (0, "bias"), (1, "weight"), (1, "bias"),
                         (1, "running_mean"), (1, "running_var"), (1, "num_batches_tracked")):
            theirs, x = model_of(2), torch.randn(SIZES[1])
            ours, _ = optimize(copy.deepcopy(theirs))
            for model in (ours, theirs):
                tensor = getattr(model[at], name).detach().clone()
                delattr(model[at], name)
                setattr(model[at], name, tensor)
            with self.subTest(at=at, name=name):
                for _ in range(2):
                    norms, _, y = self.passes(ours, x)
                    self.assertEqual(norms, 0)
                    torch.testing.assert_close(y, theirs(x), rtol=1e-4, atol=1e-4)
                    for model in (ours, theirs):
                        getattr(model[at], name).add_(1)

    def test_replicas(self):
        """What DataParallel makes: modules without parameters, whose tensors are attributes."""
        def replica_of(module):
            made = module._replicate_for_data_parallel()
            for name, child in module._modules.items():
                made._modules[name] = replica_of(child)
            for name, tensor in module._parameters.items():
                setattr(made, name, tensor * 1)
            return made
        for trained in (None, 0, 1):
            theirs, x = model_of(2), torch.randn(SIZES[1])
            if trained is not None:
                theirs[trained].requires_grad_(True)
            ours, _ = optimize(copy.deepcopy(theirs))
            y = replica_of(ours)(x)
            with self.subTest(trained=trained):
                self.assert_near(y.detach(), copy.deepcopy(theirs).requires_grad_(False), x)
                self.assertEqual(y.requires_grad, trained is not None)
                if trained is not None:
                    y.sum().backward()
                    self.assertIsNotNone(ours[trained].bias.grad)
                with torch.no_grad():
                    self.assert_near(ours(x), theirs, x)

    def test_shared_memory(self):
        """Another process may write it, and this one's PyTorch cannot count that."""
        for at, name in ((0, "weight"), (0, "bias"), (1, "weight"), (1, "running_mean"),
                         (1, "num_batches_tracked")):
            theirs, x = model_of(2), torch.randn(SIZES[1])
            ours, _ = optimize(copy.deepcopy(theirs))
            self.assertEqual(self.passes(ours, x)[0], 0)
            getattr(ours[at], name).share_memory_()
            with self.subTest(at=at, name=name):
                norms, _, y = self.passes(ours, x)
                self.assertEqual(norms, 1)
                self.assert_near(y, theirs, x)
                report = optimize(ours)[1]
                self.assertIn("shared memory", report.kept[0].note)

    def test_training_and_gradients(self):
        theirs = model_of(2).requires_grad_(True)
        ours, report = optimize(copy.deepcopy(theirs).train())
        x = torch.randn(SIZES[1])
        self.assertFalse(report[0].norm)
        self.assertEqual([(kept.name, kept.note) for kept in report.kept],
                         [("1", "it is in training mode"), ("2", "it follows a BatchNorm2d")])
        for model in (ours, theirs):
            model.train()(x).square().sum().backward()
        for mine, other in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-3)
        for mine, other in zip(ours.buffers(), theirs.buffers()):
            torch.testing.assert_close(mine, other)
        self.assertEqual(self.passes(ours.eval(), x)[0], 0)  # under no_grad
        y = ours(x)
        self.assertTrue(y.requires_grad)
        torch.testing.assert_close(y, theirs.eval()(x), rtol=1e-4, atol=1e-4)

    def test_what_is_left_alone(self):
        x = torch.randn(SIZES[1])
        cases = ((nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12, track_running_stats=False),
                  "it keeps no running statistics"),
                 (nn.Conv2d(8, 12, 3), nn.GroupNorm(2, 12), None),
                 (tessera.torch.Conv2d(8, 12, 3, activation="relu"), nn.BatchNorm2d(12),
                  "its layer has relu, which comes first"),
                 (nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12).bfloat16(), "have another type"))
        uncounted = nn.BatchNorm2d(12)
        uncounted.num_batches_tracked = None
        cases += ((nn.Conv2d(8, 12, 3), uncounted, "it counts no batches"),)
        for layer, norm, why in cases:
            theirs = nn.Sequential(layer, norm).eval().requires_grad_(False)
            ours, report = optimize(copy.deepcopy(theirs))
            with self.subTest(norm=str(norm), why=why):
                self.assertFalse(any(layer.norm for layer in report))
                if why is not None:
                    self.assertIn(why, report.kept[0].note)
                if why is None or "type" not in why:
                    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
        ours, report = optimize(model_of(2), x, fold=False)
        self.assertEqual(self.passes(ours, x)[:2], (1, 1))
        self.assertEqual(report.kept[0].note, "fold=False was given")
        ours, report = optimize(model_of(2), x, fuse=False)
        self.assertEqual(self.passes(ours, x)[:2], (0, 1))

    def test_hooks_and_parts(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        for at in (0, 1):
            mine, other = copy.deepcopy(ours), copy.deepcopy(theirs)
            for model in (mine, other):
                model[at].register_forward_hook(lambda m, i, o: o * 2)
            self.assertEqual(self.passes(mine, x)[0], 1)
            torch.testing.assert_close(mine(x), other(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours[0](x), theirs[0](x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours[1](theirs[0](x)), theirs[:2](x), rtol=1e-4, atol=1e-4)
        single = x[0]  # PyTorch's batch norm refuses an image without a batch
        with self.assertRaises(ValueError):
            ours(single)

    def test_copies_and_files(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        stream = io.BytesIO()
        torch.save(ours, stream)
        stream.seek(0)
        self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
        for other in (copy.deepcopy(ours), torch.load(stream, weights_only=False)):
            self.assertIsNone(other[0]._folded)
            self.assertEqual(self.passes(other, x)[0], 0)
            self.assert_near(other(x), theirs, x)
        plain, _ = optimize(copy.deepcopy(theirs), fold=False)
        stream = io.BytesIO()
        torch.save(plain, stream)
        stream.seek(0)
        self.assertEqual(self.passes(torch.load(stream, weights_only=False), x)[0], 1)

    def test_inference_mode(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        with torch.inference_mode():
            self.assertEqual(self.passes(ours, x)[0], 0)
            theirs[1].running_mean = ours[1].running_mean = torch.randn(12)
            norms, _, y = self.passes(ours, x)
        self.assertEqual(norms, 1)
        self.assert_near(y, theirs, x)

    def test_transforms(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        weights = {key: torch.stack([value, value * 2]) for key, value in
                   theirs.named_parameters()}
        near = dict(rtol=1e-3, atol=1e-3)
        for call in (lambda model: torch.vmap(model)(x[None]),
                     lambda model: torch.func.jvp(model, (x,), (x * 2,)),
                     lambda model: torch.func.jacrev(model)(x[:1, :, :2, :2]),
                     lambda model: torch.vmap(lambda w: torch.func.functional_call(
                         model, w, (x,)))(weights),
                     lambda model: torch.func.grad(lambda w: torch.func.functional_call(
                         model, w, (x,)).square().sum())(dict(theirs.named_parameters())),
                     lambda model: torch.func.jvp(lambda w: torch.func.functional_call(
                         model, w, (x,)), (dict(theirs.named_parameters()),),
                         (dict(theirs.named_parameters()),))):
            for context in (torch.no_grad, torch.enable_grad):
                with context():
                    torch.testing.assert_close(call(ours), call(theirs), **near)
        with torch.no_grad():
            self.assert_near(ours(x), theirs, x)

    def test_compile(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), theirs(x), rtol=1e-4, atol=1e-4)
        theirs[1].running_mean.add_(1)
        ours[1].running_mean.add_(1)
        torch.testing.assert_close(compiled(x), theirs(x), rtol=1e-4, atol=1e-4)

    def test_autocast(self):
        theirs, x = model_of(2), torch.randn(SIZES[1])
        ours, _ = optimize(copy.deepcopy(theirs), x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = ours(x)
            self.assertEqual(y.dtype, theirs(x).dtype)
            self.assert_near(y, theirs, x)

    @unittest.skipIf("cuda" not in DEVICES, "there is no GPU")
    def test_graphs(self):
        theirs, x = model_of(2).cuda(), torch.randn(SIZES[1], device="cuda")
        ours, _ = optimize(copy.deepcopy(theirs), x)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = ours(x)
        x.normal_()
        graph.replay()
        self.assert_near(y, theirs, x)
        ours[1].running_mean.add_(1)  # not folded yet: the capture takes the layers as they are
        other = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(other):
            y = ours(x)
        theirs.load_state_dict(ours.state_dict())
        other.replay()
        self.assert_near(y, theirs, x)

    @unittest.skipIf("cuda" not in DEVICES, "there is no GPU")
    def test_graphs_after_changes(self):
        """A replay sees a change after one eager call, also one on another stream."""
        theirs, x = model_of(2).cuda(), torch.randn(SIZES[1], device="cuda")
        ours, _ = optimize(copy.deepcopy(theirs), x)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = ours(x)
        for round in range(4):
            ours[0].weight.mul_(1.5)
            ours[1].running_mean.add_(1)
            theirs.load_state_dict(ours.state_dict())
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                eager = ours(x)
            held = [torch.randn(12, 4, 3, 3, device="cuda") for _ in range(50)]
            graph.replay()
            torch.cuda.synchronize()
            self.assert_near(y, theirs, x)
            self.assert_near(eager, theirs, x)
            self.assertEqual(len(held), 50)


if __name__ == "__main__":
    unittest.main(verbosity=1)
