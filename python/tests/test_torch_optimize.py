"""optimize(model) beside the model as it was: what it computes, what it keeps, how it checks
itself.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import copy
import io
import os
import pickle
import random
import time
import unittest
from unittest import mock

WANTED = os.environ.get("TESSERA_TEST_TORCH") == "1"
try:
    import torch
    import torch.nn.functional as functional
    import torch.nn.utils.prune
    from torch import nn
except ImportError:
    if WANTED:
        raise
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")

import torch_blocks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_blocks import NEAR, products

import tessera.torch
from tessera.torch import _check, _run

SEED = int(os.environ.get("TESSERA_TEST_SEED", time.time_ns() % 10**6))
optimize = tessera.torch.optimize


def setUpModule():
    torch.set_num_threads(1)  # for products this small threads only wait
    print(f"test_torch_optimize: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


def activations(function, *arguments):
    with products() as found, torch.no_grad():
        function(*arguments)
    return [activation for activation, _ in found]


class Case(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")
        torch.manual_seed(self.random.randrange(2**31))

    def assert_same(self, mine, theirs, x):
        """Outputs with and without gradients, and all gradients, with the same random numbers."""
        for context in (torch.no_grad, torch.enable_grad):
            outputs = []
            for model in (mine, theirs):
                torch.manual_seed(SEED)
                leaf = x.clone().requires_grad_(True)
                with context():
                    result = model(leaf.clone())
                tensor = result["last_hidden_state"] if isinstance(result, dict) else result
                outputs.append([tensor])
                if tensor.requires_grad:
                    leaves = [leaf, *[p for p in model.parameters() if p.requires_grad]]
                    outputs[-1] += torch.autograd.grad(tensor.square().sum(), leaves,
                                                       allow_unused=True)
            torch.testing.assert_close(outputs[0][0], outputs[1][0], **NEAR)
            # ReLU's derivative jumps, so that one rounding may change an element of a gradient.
            self.assertLess(_check.distance_of_gradients(outputs[0][1:], outputs[1][1:]), 0.05)


class Sequentials(Case):
    """Who sees a layer sees the layer, however a container calls it."""

    def setUp(self):
        super().setUp()
        self.theirs = torch_blocks.plain().eval().requires_grad_(False)
        self.ours, self.report = optimize(copy.deepcopy(self.theirs))
        self.x = torch.randn(5, 32)

    def test_fused(self):
        self.assertEqual(activations(self.ours, self.x), ["relu", "gelu"])
        self.assertEqual([layer.activation for layer in self.report], ["relu", "gelu"])
        torch.testing.assert_close(self.ours(self.x), self.theirs(self.x), **NEAR)

    def test_indexed_sliced_and_walked_layers(self):
        torch.testing.assert_close(self.ours[0](self.x), self.theirs[0](self.x), **NEAR)
        self.assertLess(float(self.ours[0](self.x).min()), 0)
        for part in (slice(1), slice(2), slice(0, 3), slice(None, None, 2)):
            if part.step is None:
                torch.testing.assert_close(self.ours[part](self.x), self.theirs[part](self.x),
                                           **NEAR)
        y = self.x
        for module in self.ours:
            y = module(y)
        torch.testing.assert_close(y, self.theirs(self.x), **NEAR)
        self.assertEqual(activations(self.ours[0], self.x), [None])

    def test_shared_layer(self):
        layer = nn.Linear(32, 32)
        model = nn.ModuleList([nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer, nn.Tanh()),
                               layer, nn.Sequential(layer, layer)]).requires_grad_(False)
        theirs = copy.deepcopy(model)
        optimize(model)
        self.assertIs(model[0][0], model[1][0])
        for ours, other in zip(model, theirs):
            torch.testing.assert_close(ours(self.x), other(self.x), **NEAR)
        self.assertEqual(activations(model[1], self.x), ["tanh"])

    def test_hooks_that_come_later(self):
        for at in range(4):
            for register in ("register_forward_hook", "register_forward_pre_hook"):
                ours, theirs = copy.deepcopy(self.ours), copy.deepcopy(self.theirs)
                hook = ((lambda m, i: (i[0] * 2,)) if "pre" in register else
                        (lambda m, i, o: o * 2))
                handles = [getattr(model[at], register)(hook) for model in (ours, theirs)]
                torch.testing.assert_close(ours(self.x), theirs(self.x), **NEAR)
                for handle in handles:
                    handle.remove()
                self.assertEqual(activations(ours, self.x), ["relu", "gelu"])

    def test_hooks_that_were_there(self):
        theirs = torch_blocks.plain().requires_grad_(False)
        for module in theirs:
            module.register_forward_hook(lambda m, i, o: o * 2)
        ours, report = optimize(copy.deepcopy(theirs))
        self.assertIs(type(ours[0]), tessera.torch.Linear)
        torch.testing.assert_close(ours(self.x), theirs(self.x), **NEAR)
        self.assertEqual(activations(ours, self.x), [None, None])

    def test_hooks_of_all_modules(self):
        seen = []
        handle = nn.modules.module.register_module_forward_hook(
            lambda module, inputs, output: seen.append(type(module).__name__))
        try:
            self.ours(self.x)
        finally:
            handle.remove()
        self.assertEqual(seen, ["Linear", "ReLU", "Linear", "GELU", "Sequential"])

    def test_backward_hooks(self):
        seen = []
        self.ours[1].register_full_backward_hook(lambda m, i, o: seen.append(o[0].shape))
        self.ours(self.x.requires_grad_(True)).sum().backward()
        self.assertEqual(seen, [(5, 48)])

    def test_modes_that_see_each_operator(self):
        class Functions(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        class Operators(TorchDispatchMode):
            def __torch_dispatch__(self, op, types, args=(), kwargs=None):
                seen.append(op)
                return op(*args, **(kwargs or {}))
        for mode, wanted in ((Functions, functional.relu),
                             (Operators, torch.ops.aten.relu.default)):
            seen = []
            with mode():
                self.ours(self.x)
            self.assertIn(wanted, seen)

    def test_forward_of_one_object(self):
        """A layer whose forward is another one keeps it, before and after."""
        for early in (True, False):
            model = torch_blocks.plain().requires_grad_(False)
            if not early:
                optimize(model)
            model[0].forward = lambda x: functional.linear(x, model[0].weight) * 3
            report = optimize(model)[1]
            y = model[:2](self.x)
            torch.testing.assert_close(y, functional.linear(self.x, model[0].weight).relu() * 3,
                                       **NEAR)
            if early:
                self.assertEqual(report[0].note, "its forward was replaced by another one")

    def test_replaced_parts(self):
        self.ours[1] = nn.Tanh()
        self.theirs[1] = nn.Tanh()
        torch.testing.assert_close(self.ours(self.x), self.theirs(self.x), **NEAR)
        self.ours.append(nn.Linear(16, 4))
        self.assertEqual(self.ours(self.x).shape, (5, 4))

    def test_gradients_are_not_computed_twice(self):
        self.ours.requires_grad_(True)
        with products() as found:
            self.ours(self.x).sum().backward()
        self.assertEqual([activation for activation, _ in found if activation], [])

    def test_compile(self):
        compiled = torch.compile(self.ours, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(self.x), self.theirs(self.x), **NEAR)
        self.assertEqual(activations(compiled, self.x), ["relu", "gelu"])

    def test_activation_of_its_own(self):
        layer = tessera.torch.Linear(8, 8, activation="relu").requires_grad_(False)
        model = nn.Sequential(layer, nn.GELU(), nn.Linear(8, 8)).requires_grad_(False)
        expected = functional.gelu(layer(self.x[:, :8]))
        report = optimize(model)[1]
        torch.testing.assert_close(model[:2](self.x[:, :8]), expected)
        self.assertEqual([(kept.name, kept.note) for kept in report.kept],
                         [("1", "its layer has relu already")])

    def test_class_of_its_own(self):
        theirs = torch_blocks.MLP(32, 48).eval().requires_grad_(False)
        ours, _ = optimize(copy.deepcopy(theirs))
        self.assertEqual(activations(ours, self.x), ["gelu", None])
        self.assertIsInstance(ours, torch_blocks.MLP)
        self.assertEqual(ours.describe(), "MLP of 48")
        self.assertEqual(repr(ours), repr(theirs))
        for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.copy(ours)):
            self.assertIs(type(other), type(ours))
            self.assertEqual(other.describe(), "MLP of 48")
            torch.testing.assert_close(other(self.x), theirs(self.x), **NEAR)

    def test_forward_of_its_own(self):
        class Residual(nn.Sequential):
            def forward(self, x):
                return x + super().forward(x)
        model = Residual(nn.Linear(32, 32), nn.ReLU()).requires_grad_(False)
        expected = model(self.x)
        report = optimize(model)[1]
        self.assertIs(type(model), Residual)
        torch.testing.assert_close(model(self.x), expected, **NEAR)
        self.assertEqual([kept.name for kept in report.kept], ["1"])


    def test_order_of_its_own(self):
        """nn.Sequential.forward walks over itself, so that a class may say what comes when."""
        class Backwards(nn.Sequential):
            def __iter__(self):
                return reversed(list(self._modules.values()))
        model = Backwards(nn.Linear(32, 32), nn.ReLU()).requires_grad_(False)
        expected = model(self.x)
        report = optimize(model, self.x)[1]
        self.assertTrue(report.agrees)
        self.assertIs(type(model), Backwards)
        torch.testing.assert_close(model(self.x), expected, **NEAR)
        self.assertEqual([kept.name for kept in report.kept], ["1"])
        torch.testing.assert_close(optimize(model)[0](self.x), expected, **NEAR)

    def test_activation_of_the_users(self):
        """An attribute that PyTorch's layer never reads."""
        for layer, x in ((nn.Linear(32, 32), self.x), (nn.Conv2d(2, 3, 3), torch.randn(1, 2, 8, 8)),
                         (nn.ConvTranspose1d(2, 3, 3), torch.randn(1, 2, 8))):
            for value in ("relu", functional.relu, None):
                model = nn.Sequential(layer, nn.Tanh()).requires_grad_(False)
                layer.activation = value
                expected = model(x)
                report = optimize(model)[1]
                self.assertIn("attribute 'activation' of its own", report[0].note)
                self.assertEqual(type(layer).__module__.split(".")[0], "torch")
                self.assertTrue(torch.equal(model(x), expected))

    def test_optimize_again(self):
        """The last call decides what a container leaves to its layers."""
        theirs = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Linear(6, 6),
                               nn.ReLU()).eval().requires_grad_(False)
        x = torch.randn(2, 8, 8, 8)
        model, expected = copy.deepcopy(theirs), theirs(x)
        for fuse, fold, passes in ((True, False, ["1", "2"]), (True, True, []),
                                   (False, True, ["2", "4"]), (False, False, ["1", "2", "4"]),
                                   (True, True, [])):
            _, report = optimize(model, x, fuse=fuse, fold=fold)
            norm = mock.patch.object(functional, "batch_norm", wraps=functional.batch_norm)
            relu = mock.patch.object(functional, "relu", wraps=functional.relu)
            with self.subTest(fuse=fuse, fold=fold), norm as norms, relu as activations:
                self.assertTrue(report.agrees, str(report))
                self.assertEqual([kept.name for kept in report.kept], passes)
                torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
                self.assertEqual(norms.call_count + activations.call_count, len(passes))
                self.assertEqual(type(model) is nn.Sequential, not (fuse or fold))
                self.assertIs(type(pickle.loads(pickle.dumps(model))), type(model))


class Blocks(Case):
    """Blocks of known models stay what they are."""

    def test_outputs_and_gradients(self):
        for make, shape in torch_blocks.BLOCKS:
            theirs, x = make(), torch.randn(shape)
            for example in (None, x):
                ours, report = optimize(copy.deepcopy(theirs), example)
                with self.subTest(block=make.__name__, example=example is not None):
                    self.assertIsNot(report.agrees, False, str(report))
                    for training in (False, True):
                        self.assert_same(ours.train(training),
                                         copy.deepcopy(theirs).train(training), x)

    def test_all_that_surrounds_a_layer(self):
        for make, shape in torch_blocks.BLOCKS:
            theirs, x = make(), torch.randn(shape)
            state, names = theirs.state_dict(), dict(theirs.named_modules())
            kinds, held = [type(m) for m in names.values()], vars(theirs).keys() - {"_modules"}
            ours, report = optimize(theirs)
            with self.subTest(block=make.__name__):
                self.assertIs(ours, theirs)
                self.assertEqual(list(ours.state_dict()), list(state))
                self.assertTrue(all(after is names[name] for name, after in ours.named_modules()))
                self.assertTrue(all(ours.state_dict()[key].data_ptr() == state[key].data_ptr()
                                    for key in state))
                for module, kind in zip(names.values(), kinds):
                    self.assertIsInstance(module, kind)
                    self.assertEqual(type(module).__name__, kind.__name__)
                    if not isinstance(module, (nn.Linear, nn.Conv2d, nn.Sequential)):
                        self.assertIs(type(module), kind)
                self.assertEqual(vars(ours).keys() - {"_modules"}, held)

    def test_nothing_runs_without_an_example(self):
        block = torch_blocks.ByFunction()
        optimize(block)
        self.assertEqual((block.calls, block.last), (0, None))
        block.reset()

    def test_copies_and_files(self):
        for make, shape in torch_blocks.BLOCKS:
            theirs, x = make().eval(), torch.randn(shape)
            ours, _ = optimize(copy.deepcopy(theirs))
            stream = io.BytesIO()
            torch.save(ours, stream)
            stream.seek(0)
            for other in (copy.deepcopy(ours), torch.load(stream, weights_only=False)):
                with self.subTest(block=make.__name__):
                    self.assertEqual([type(m) for m in other.modules()],
                                     [type(m) for m in ours.modules()])
                    self.assert_same(other, theirs, x)
            theirs.load_state_dict(ours.state_dict())
            ours.load_state_dict(make().state_dict())

    def test_traces(self):
        """Tools of PyTorch that follow a model find what they found before."""
        theirs = torch_blocks.plain().eval().requires_grad_(False)
        ours, x = optimize(copy.deepcopy(theirs))[0], torch.randn(5, 32)
        graph = torch.fx.symbolic_trace(ours)
        self.assertEqual([node.target for node in graph.graph.nodes if node.op == "call_module"],
                         ["1", "3"])
        replica = ours._replicate_for_data_parallel()
        for other in (torch.jit.trace(ours, x), graph, replica,
                      torch.export.export(ours, (x,)).module()):
            torch.testing.assert_close(other(x), theirs(x), **NEAR)

    def test_weights_that_become_computed(self):
        x = torch.randn(5, 32)
        theirs = torch_blocks.plain().requires_grad_(False)
        ours = optimize(copy.deepcopy(theirs))[0]
        ours[0].pack(activation="relu")
        for model in (ours, theirs):
            nn.utils.prune.l1_unstructured(model[0], "weight", 0.5)
            nn.utils.parametrizations.weight_norm(model[2])
            model[2].parametrizations.weight.original0.data.mul_(2)
        for _ in range(3):
            torch.testing.assert_close(ours(x), theirs(x), **NEAR)

    def test_layers_that_get_their_size_late(self):
        model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyBatchNorm1d())
        _, report = optimize(model, torch.randn(5, 32))
        self.assertTrue(report.agrees, str(report))
        self.assertIs(type(model[0]), tessera.torch.Linear)

    def test_arguments_by_name(self):
        theirs, x = torch_blocks.BertLayer().eval(), torch.randn(torch_blocks.WORDS)
        example = {"hidden_states": x, "output_attentions": True}
        ours, report = optimize(copy.deepcopy(theirs), example)
        self.assertTrue(report.agrees)
        self.assertIn("gemm m=16 n=64 k=32", str(report))
        torch.testing.assert_close(ours(**example), theirs(**example), **NEAR)

    def test_old_weight_norm(self):
        """Its hook computes the weight anew before each call."""
        with self.assertWarns(FutureWarning):
            theirs = nn.Sequential(nn.utils.weight_norm(nn.Linear(32, 32)), nn.ReLU())
        theirs.requires_grad_(False)
        x = torch.randn(4, 32)
        theirs(x)
        ours, report = optimize(copy.deepcopy(theirs))
        for model in (ours, theirs):
            model[0].weight_g.mul_(2)
        torch.testing.assert_close(ours(x), theirs(x), **NEAR)
        self.assertIn("computed anew for each call", report[0].note)


class Check(Case):
    def setUp(self):
        super().setUp()
        self.model, self.x = torch_blocks.plain(), torch.randn(5, 32)
        run = _run.run_gemm
        self.wrong = torch_blocks.run_gemm_as(lambda *a: run(*a) * 1.1)

    def test_agreement(self):
        _, report = optimize(self.model, self.x)
        self.assertTrue(report.agrees)
        self.assertRegex(report.check, r"^compared on the example: outputs differ by \S+ of the "
                                       r"greatest element, gradients by \S+ of their "
                                       r"sizes$")

    def test_wrong_kernel(self):
        expected = self.model(self.x)
        with self.wrong:
            _, report = optimize(self.model, self.x)
            self.assertTrue(torch.equal(self.model(self.x), expected))
        self.assertIs(report.agrees, False)
        self.assertEqual([type(m) for m in self.model.modules()],
                         [nn.Sequential, nn.Linear, nn.ReLU, nn.Linear, nn.GELU])
        self.assertTrue(str(report).endswith("0 of 2 modules were replaced"))
        self.assertIn("all was put back, because the model changed on its example", str(report))

    def test_wrong_gradient_alone(self):
        backward = mock.patch.object(tessera.torch._ops, "_needs", lambda ctx, at: at != 0)
        with backward:
            _, report = optimize(self.model, self.x)
        self.assertIs(report.agrees, False)
        self.assertIs(type(self.model[0]), nn.Linear)

    def test_call_that_fails(self):
        with torch_blocks.run_gemm_as(mock.Mock(side_effect=RuntimeError("no kernel"))):
            _, report = optimize(self.model, self.x)
        self.assertIs(type(self.model[0]), nn.Linear)
        self.assertEqual([layer.note for layer in report],
                         ["on its example it raised RuntimeError: no kernel"] * 2)

    def test_model_that_never_repeats(self):
        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.calls = nn.Linear(32, 32), 0

            def forward(self, x):
                self.calls += 1
                return self.layer(x) * self.calls
        model = Counting()
        _, report = optimize(model, self.x)
        self.assertIs(type(model.layer), tessera.torch.Linear)
        self.assertIsNone(report.agrees)
        self.assertIn("in two runs of the model as it was outputs differ by", report.check)

    def test_distances(self):
        """What compares can tell: a turned sign of a few elements, a tensor of roundings, sizes,
        what is no number, and a wrong tensor among others."""
        right = [torch.randn(4000), torch.randn(50) * 1e-8, None, torch.zeros(0)]
        near = [right[0].clone(), torch.randn(50) * 1e-8, None, torch.zeros(0)]
        near[0][7] = 0
        self.assertLess(_check.distance_of_gradients(near, right), 0.1)
        self.assertGreater(_check.distance_of_gradients([near[0], right[0][:50], *near[2:]], right),
                           1)
        infinity = float("inf")
        self.assertEqual(_check.distance_of_gradients([None, *near[1:]], right), infinity)
        self.assertEqual(_check.distance([right[0]], [right[0][None]]), infinity)
        self.assertEqual(_check.distance([right[0]], [right[0].double()]), infinity)
        odd = torch.tensor([float("nan"), infinity, -infinity, 2.0])
        self.assertEqual(_check.distance([odd], [odd.clone()]), 0)
        self.assertEqual(_check.distance([odd], [odd.flip(0)]), infinity)
        self.assertEqual(_check.distance([torch.tensor([1.0, 3.0])], [torch.tensor([2.0, 4.0])]),
                         0.25)

    def test_state_stays(self):
        for block, shape in ((torch_blocks.BasicBlock(), torch_blocks.IMAGE),
                             (torch_blocks.CNBlock(), torch_blocks.IMAGE),
                             (torch_blocks.BertLayer(), torch_blocks.WORDS)):
            state, numbers = copy.deepcopy(block.state_dict()), torch.random.get_rng_state()
            _, report = optimize(block.train(), torch.randn(shape, generator=torch.Generator()))
            self.assertTrue(report.agrees, str(report))
            self.assertTrue(torch.equal(numbers, torch.random.get_rng_state()))
            for key, value in block.state_dict().items():
                self.assertTrue(torch.equal(value, state[key]), key)
            self.assertTrue(all(p.grad is None for p in block.parameters()))

    def test_no_gradients(self):
        with torch.no_grad():
            _, report = optimize(self.model, self.x)
        self.assertIn("gradients were not compared, because gradients are switched off",
                      report.check)
        model = nn.Sequential(nn.Linear(32, 8), torch_blocks.Permute([1, 0]))
        model[1].forward = lambda x: torch.from_numpy(x.numpy())
        self.assertIn("RuntimeError", optimize(model, self.x)[1].check)

    def test_no_check(self):
        with self.wrong:
            _, report = optimize(self.model, self.x, check=False)
        self.assertIsNone(report.agrees)
        self.assertIn("check=False", str(report))

    def test_what_was_not_taken(self):
        _, report = optimize(torch_blocks.BertLayer(torch_blocks.Config("relu")))
        self.assertEqual([(kept.name, kept.activation) for kept in report.kept],
                         [("intermediate.intermediate_act_fn", "relu")])
        self.assertIn("no Sequential has it after another module", report.kept[0].note)
        _, report = optimize(nn.Sequential(nn.Linear(4, 4).double(), nn.ReLU(), nn.LayerNorm(4),
                                           nn.SiLU()))
        self.assertEqual([kept.note for kept in report.kept],
                         ["the layer before it was left alone", "it follows a LayerNorm"])
        self.assertIn("float64", report[0].note)


if __name__ == "__main__":
    unittest.main(verbosity=1)
