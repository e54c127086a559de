"""optimize(model) beside the model as it was: what it computes, what it keeps, how it checks
itself; and packed weights that change.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import contextlib
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
    from torch import nn
except ImportError:
    if WANTED:
        raise
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")

import torch_blocks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tessera
import tessera.torch
from tessera.torch import _run

SEED = int(os.environ.get("TESSERA_TEST_SEED", time.time_ns() % 10**6))
optimize = tessera.torch.optimize
# Sums of at most 100 products of about 1, in another order, through a few layers.
NEAR = dict(rtol=1e-3, atol=2e-5)


def setUpModule():
    torch.set_num_threads(1)  # for products this small threads only wait
    print(f"test_torch_optimize: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


@contextlib.contextmanager
def products():
    """The (activation, whether the weight is packed) of each product that runs meanwhile."""
    found, run = [], _run.run_gemm

    def look(*arguments):
        found.append((arguments[3], len(arguments) > 6 and arguments[6] is not None))
        return run(*arguments)
    with mock.patch.object(_run, "run_gemm", look):
        yield found


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
            for left, right in zip(*outputs):
                torch.testing.assert_close(left, right, **NEAR)


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
        torch.testing.assert_close(torch.compile(self.ours, fullgraph=True)(self.x),
                                   self.theirs(self.x), **NEAR)

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
        self.wrong = mock.patch.object(_run, "run_gemm", lambda *a: run(*a) * 1.1)

    def test_agreement(self):
        _, report = optimize(self.model, self.x)
        self.assertTrue(report.agrees)
        self.assertRegex(report.check, r"^compared on the example: outputs differ by \S+ of the "
                                       r"greatest element, gradients by \S+$")

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

    def test_model_that_never_repeats(self):
        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.source = nn.Linear(32, 32), random.Random(SEED)

            def forward(self, x):
                return self.layer(x) * self.source.random()
        model = Noisy()
        _, report = optimize(model, self.x)
        self.assertIs(type(model.layer), tessera.torch.Linear)
        self.assertIn("two runs of the model as it was differ by", report.check)

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


class PackedWeights(Case):
    """A packed weight is used as long as the weight is what it was."""

    ROWS = (1, 2, 16, 256)

    def setUp(self):
        super().setUp()
        self.layer = tessera.torch.Linear(96, 160).requires_grad_(False)
        self.layer.pack()

    def assert_right(self, layer, call=None):
        call = layer if call is None else call
        for _ in range(3):
            for rows in self.ROWS:
                x = torch.randn(rows, 96)
                torch.testing.assert_close(
                    call(x), functional.linear(x, layer.weight, layer.bias), **NEAR)

    def changes(self):
        """(what changes the weight, how)"""
        layer, other = self.layer, torch.randn(160, 96) / 10

        def zero():
            layer.weight.zero_()

        def other_memory():
            layer.weight.data = other.clone()

        def again():  # the allocator may give the memory of the one before
            layer.weight.data = other.clone() * 2
            layer.weight.data = other.clone() * 3

        def copied():
            layer.weight.copy_(other)

        def parameter():
            layer.weight = nn.Parameter(other.clone(), requires_grad=False)

        def same_memory():
            layer.weight = nn.Parameter(layer.weight.data, requires_grad=False)
            layer.weight.mul_(2)

        def inference():
            with torch.inference_mode():
                layer.weight.mul_(2)

        def step():
            layer.requires_grad_(True)
            layer(torch.randn(4, 96)).square().sum().backward()
            torch.optim.SGD(layer.parameters(), 0.1).step()
            layer.requires_grad_(False)

        def through_data():
            layer.weight.data.mul_(2)

        def merged():
            layer.weight.data += other

        def through_numpy():
            layer.weight.numpy()[:] = other.numpy()

        def view():
            layer.weight[3:5].fill_(7)

        def loaded():
            layer.load_state_dict({"weight": other, "bias": torch.randn(160)})

        def assigned():
            layer.load_state_dict({"weight": other.clone(), "bias": torch.randn(160)}, assign=True)
            layer.requires_grad_(False)

        def turned():
            tall = torch.randn(96, 160) / 10
            layer.weight.data = tall.T

        def swapped():
            torch.utils.swap_tensors(layer.weight,
                                     nn.Parameter(other.clone(), requires_grad=False))
        return (zero, other_memory, again, copied, parameter, same_memory, inference, step,
                through_data, merged, through_numpy, view, loaded, assigned, swapped, turned)

    def test_weight_that_changes(self):
        for change in self.changes():
            with self.subTest(change=change.__name__):
                self.layer.pack()
                change()
                self.assertIsNone(self.layer.packed)
                self.assert_right(self.layer)
                self.assertIsNotNone(self.layer.packed)  # packed again

    def test_weight_that_changes_in_a_compiled_model(self):
        compiled = torch.compile(self.layer, dynamic=True)
        self.assert_right(self.layer, compiled)
        for change in self.changes()[:-1]:  # PyTorch's own check stops a compiled call by strides
            with self.subTest(change=change.__name__):
                change()
                self.assert_right(self.layer, compiled)

    def test_packed_weight_is_used(self):
        call = torch.compile(self.layer, dynamic=True)
        for function in (self.layer, call):
            with products() as found:
                function(torch.randn(256, 96))
            self.assertEqual(found, [(None, True)])

    def test_weight_that_changes_at_each_call(self):
        """It is not packed each time."""
        packs = mock.patch.object(tessera.torch.Linear, "_packed", side_effect=AssertionError)
        with packs:
            for _ in range(5):
                self.layer.weight.mul_(1.1)
                self.layer(torch.randn(16, 96))

    def test_functional_call(self):
        x, other = torch.randn(64, 96), torch.randn(160, 96) / 10
        for weight in (other, nn.Parameter(other, requires_grad=False)):
            for _ in range(3):
                result = torch.func.functional_call(self.layer, {"weight": weight}, (x,))
                torch.testing.assert_close(result, functional.linear(x, weight, self.layer.bias),
                                           **NEAR)
        self.assert_right(self.layer)

    def test_operator_with_another_weight(self):
        """The operator compares, too, and reads nothing that is too short."""
        x, other, held = torch.randn(64, 96), torch.randn(160, 96) / 10, self.layer.packed
        kernel = self.layer.kernel
        for packed in (held, torch.empty(16, dtype=torch.uint8), held.clone()):
            result = torch.ops.tessera.linear(x, other, None, None, packed, kernel)
            torch.testing.assert_close(result, functional.linear(x, other), **NEAR)

    def test_old_memory_is_given_back(self):
        old = StorageWeakRef(self.layer.weight.untyped_storage())
        self.layer.weight = nn.Parameter(torch.randn(160, 96), requires_grad=False)
        self.assertTrue(old.expired())

    def test_weight_of_other_sizes(self):
        self.layer.weight = nn.Parameter(torch.randn(40, 96), requires_grad=False)
        self.layer.bias = None
        self.assert_right(self.layer)

    def test_copies_and_files(self):
        for other in (copy.deepcopy(self.layer), pickle.loads(pickle.dumps(self.layer))):
            self.assertIsNone(other.packed)
            self.assert_right(other)
            self.assertIsNotNone(other.packed)
        self.assertIsNotNone(self.layer.packed)

    def test_weights_whose_changes_nobody_sees(self):
        with torch.inference_mode():
            layer = tessera.torch.Linear(8, 8).requires_grad_(False)
        with self.assertRaisesRegex(tessera.Error, "inference mode, where PyTorch counts no "
                                                   "changes"):
            layer.pack()

    def test_optimized_model(self):
        model = torch_blocks.plain().requires_grad_(False)
        optimize(model)
        for layer, word in ((model[0], "relu"), (model[2], "gelu")):
            layer.pack(256, word)
        x = torch.randn(256, 32)
        with products() as found:
            model(x)
        self.assertEqual([activation for activation, _ in found], ["relu", "gelu"])
        theirs = torch_blocks.plain()
        model.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(model(x), theirs(x), **NEAR)


if __name__ == "__main__":
    unittest.main(verbosity=1)
