"""The ways to calls that were seen before: operators, gradients, packed weights and transposed
convolutions, and what must not be taken for such a call.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import copy
import threading
import unittest

from test_torch import DEVICES, SEED, Case
from test_torch_warm import NEAR, functions

import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tessera.torch as tt
from tessera import _warm as arrays_warm
from tessera.torch import _ops, _run, _warm

ops = torch.ops.tessera
HOW = ("bhsd", None, None, 0, None, 0.0, None, None, 0, 0.0, False, False)


def setUpModule():
    torch.backends.cudnn.allow_tf32 = False
    print(f"test_torch_warm_ways: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


class Spied(Case):
    def setUp(self):
        super().setUp()
        tt.linear(torch.ones(1, 1), torch.ones(1, 1))  # loads what find() needs
        _run.forget()

    def said(self, call):
        """What the extension said of each lookup in that call."""
        seen, find = [], _warm.find

        def spy(*arguments):
            seen.append(find(*arguments))
            return seen[-1]
        _warm.find = spy
        try:
            call()
        finally:
            _warm.find = find
        return [{list: "new", type(None): "not plain", bool: "gradient"}.get(type(one), "found")
                for one in seen]

    def assert_found_again(self, call):
        self.assertIn("new", self.said(call))
        self.assertEqual(["found"], self.said(call))


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class Operators(Spied):

    def test_the_second_call_of_every_operator_is_found(self):
        device = DEVICES[-1]
        x, w, b = (torch.randn(*shape, device=device) for shape in ((4, 16), (8, 16), (8,)))
        q = torch.randn(2, 2, 5, 8, device=device)
        image, filters = torch.randn(2, 4, 6, 6, device=device), torch.randn(4, 4, 3, 3,
                                                                              device=device)
        how = [1, 1], [1, 1, 1, 1], [1, 1], 1
        none = (None,) * 7
        for name, call, want in (
                ("linear", lambda: ops.linear(x, w, b), functional.linear(x, w, b)),
                ("default", lambda: ops.linear.default(x, w, b, "relu"),
                 functional.linear(x, w, b).relu()),
                ("named", lambda: ops.linear(x, w, activation="relu", bias=b),
                 functional.linear(x, w, b).relu()),
                ("all named", lambda: ops.linear(weight=w, x=x), functional.linear(x, w)),
                ("matmul", lambda: ops.matmul(x, w.T, residual=b.expand(4, 8)), x @ w.T + b),
                ("softmax", lambda: ops.softmax(x), x.softmax(-1)),
                ("rms_norm", lambda: ops.rms_norm(x, None, 1e-5),
                 functional.rms_norm(x, (16,), None, 1e-5)),
                ("conv", lambda: ops.conv(image, filters, None, *how),
                 functional.conv2d(image, filters, padding=1)),
                ("conv_backward_data", lambda: ops.conv_backward_data(image, filters, [6, 6], *how),
                 functional.conv_transpose2d(image, filters, padding=1)),
                ("attention", lambda: ops.attention(q, q, q, *none, *HOW)[0],
                 functional.scaled_dot_product_attention(q, q, q))):
            with self.subTest(name), torch.no_grad():
                if name == "matmul":  # the broadcast residual is copied at each call
                    self.assertEqual(["new"], self.said(call)[:1])
                else:
                    self.assert_found_again(call)
                torch.testing.assert_close(call(), want, **NEAR)

    def test_an_operator_says_what_its_function_says_of_random_calls(self):
        rng = self.random
        with torch.no_grad():
            for _ in range(60):
                m, n, k = (rng.choice([1, 2, 5]) for _ in range(3))
                x, w = torch.randn(m, k), torch.randn(n, k)
                b = rng.choice([None, torch.randn(n)])
                activation = rng.choice([None, "relu", "tanh"])
                want = {None: lambda y: y, "relu": torch.relu, "tanh": torch.tanh}[activation](
                    functional.linear(x, w, b))
                torch.testing.assert_close(ops.linear(x, w, b, activation), want, **NEAR)
                torch.testing.assert_close(ops.linear(x, w, activation=activation, bias=b), want,
                                           **NEAR)

    def test_wrong_arguments_are_refused_after_right_ones(self):
        x, w = torch.randn(4, 16), torch.randn(8, 16)
        with torch.no_grad():
            ops.linear(x, w), ops.linear(x, w)
            with self.assertRaises(tt._run.Error):
                ops.linear(x, torch.randn(8, 17))
            for wrong in ((x,), (x, [w]), (x, w, None, 3)):
                with self.subTest(str(len(wrong))), self.assertRaises((RuntimeError, TypeError)):
                    ops.linear(*wrong)
            with self.assertRaises((RuntimeError, TypeError)):
                ops.linear(x, w, weight=w)

    def test_packets_stay_pytorchs(self):
        self.assertIsInstance(ops.linear, torch._ops.OpOverloadPacket)
        self.assertIsInstance(ops.linear.default, torch._ops.OpOverload)
        self.assertIs(ops.linear, copy.deepcopy(ops.linear))
        x, w = torch.randn(4, 16), torch.randn(8, 16)

        def both(x, w):
            return torch.ops.tessera.linear(x, w) + torch.ops.tessera.linear.default(x, w)
        want = 2 * functional.linear(x, w)
        compiled = torch.compile(both, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, w), want, **NEAR)

        def one(x, w):
            return torch.ops.tessera.linear(x, w)
        torch.testing.assert_close(torch.jit.script(one)(x, w), want / 2, **NEAR)
        traced = torch.fx.experimental.proxy_tensor.make_fx(both)(x, w)
        torch.testing.assert_close(traced(x, w), want, **NEAR)
        self.assertIn("tessera.linear", traced.code)

    def test_a_profiler_sees_them(self):
        x, w = torch.randn(4, 16), torch.randn(8, 16)
        with torch.no_grad():
            ops.linear(x, w), ops.linear(x, w)
            with torch.autograd.profiler.profile() as seen:
                ops.linear(x, w)
        self.assertIn("tessera::linear", [event.name for event in seen.function_events])


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class Gradients(Spied):

    def test_seen_calls_have_pytorchs_gradients(self):
        for device in DEVICES:
            for name, (ours, theirs, draw) in functions(device).items():
                if name == "add_rms_norm":
                    continue
                drawn = draw()
                for _ in range(3):
                    grads = []
                    fresh = [None if t is None else torch.randn_like(t) for t in drawn]
                    for function in (ours, theirs):
                        leaves = [None if t is None else t.clone().requires_grad_() for t in fresh]
                        function(*leaves).square().sum().backward()
                        grads.append([leaf.grad for leaf in leaves if leaf is not None])
                    with self.subTest(f"{name} {device}"):
                        for one, other in zip(*grads):
                            torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)

    def test_the_second_forward_is_found_below_the_gradient(self):
        for name, (ours, _, draw) in functions().items():
            if name in ("attention", "sdpa", "linear", "conv2d", "matmul"):
                with self.subTest(name):
                    tensors = draw()
                    tensors[0].requires_grad_()
                    self.assertIn("new", self.said(lambda: ours(*tensors)))
                    self.assertEqual("found", self.said(lambda: ours(*tensors))[-1])

    def test_a_result_asks_for_a_gradient_only_where_an_input_does(self):
        x, w = torch.randn(4, 16), torch.randn(8, 16)
        for call in (tt.linear, ops.linear, ops.linear.default):
            call(x, w), call(x, w)
            self.assertFalse(call(x, w).requires_grad)
            w.requires_grad_()
            self.assertTrue(call(x, w).requires_grad)
            with torch.no_grad():
                self.assertFalse(call(x, w).requires_grad)
            w.requires_grad_(False)
            self.assertFalse(call(x, w).requires_grad)

    def test_hooks_of_saved_tensors_are_called(self):
        x, w = torch.randn(4, 16, requires_grad=True), torch.randn(8, 16)
        tt.linear(x, w), tt.linear(x, w)
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            tt.linear(x, w).sum().backward()
        self.assertTrue(packed)


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class Modules(Spied):

    def test_a_packed_weight_is_found_and_followed(self):
        layer = tt.Linear(64, 96).requires_grad_(False)
        layer.pack()
        x = torch.randn(8, 64)
        self.assert_found_again(lambda: layer(x))
        for change in (lambda: layer.weight.mul_(2), lambda: layer.weight.data.add_(1),
                       lambda: setattr(layer, "weight", torch.nn.Parameter(
                           torch.randn(96, 64), requires_grad=False)),
                       lambda: layer.bias.add_(1)):
            change()
            for _ in range(3):
                torch.testing.assert_close(
                    layer(x), functional.linear(x, layer.weight, layer.bias), rtol=1e-3, atol=1e-3)
        x.requires_grad_()
        layer(x).sum().backward()
        torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(8, 64), rtol=1e-3, atol=1e-3)

    def test_a_transposed_convolution_is_found(self):
        for device in DEVICES:
            x, w, b = (torch.randn(*shape, device=device)
                       for shape in ((2, 4, 5, 5), (4, 6, 3, 3), (6,)))
            how = dict(stride=2, padding=1, output_padding=1)
            with torch.no_grad():
                self.assert_found_again(lambda: tt.conv_transpose2d(x, w, **how))
                for bias in (None, b):
                    torch.testing.assert_close(tt.conv_transpose2d(x, w, bias, **how),
                                               functional.conv_transpose2d(x, w, bias, **how),
                                               **NEAR)
                with self.assertRaises(tt._run.Error):
                    tt.conv_transpose2d(x, w, torch.randn(7, device=device), **how)
                single = tt.conv_transpose2d(x[0], w, b, **how)
                torch.testing.assert_close(single, functional.conv_transpose2d(x[0], w, b, **how),
                                           **NEAR)
            b.requires_grad_()
            tt.conv_transpose2d(x, w, b, **how).sum().backward()
            torch.testing.assert_close(b.grad, torch.full_like(b, 2 * 10 * 10), **NEAR)


class Named(torch.Tensor):
    pass


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names = [*getattr(self, "names", []), str(function)]
        return function(*args, **(kwargs or {}))


class Watching(TorchFunctionMode):
    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class Unlike(Spied):
    """What is not the call that was seen, though it looks like it."""

    def both(self, x, w):
        """Once for each way to the same product."""
        return [tt.linear(x, w), ops.linear(x, w), ops.linear.default(x, w)]

    def setUp(self):
        super().setUp()
        self.x, self.w = torch.randn(4, 16), torch.randn(8, 16)
        for _ in range(2):
            self.want = self.both(self.x, self.w)[0]

    def test_other_types_and_strides(self):
        for dtype in (torch.float16, torch.bfloat16):
            for made in self.both(self.x.to(dtype), self.w.to(dtype)):
                self.assertEqual(dtype, made.dtype)
                torch.testing.assert_close(made.float(), self.want, rtol=5e-2, atol=5e-2)
        for x in (self.x.T.contiguous().T, torch.cat([self.x, self.x], 1)[:, :16],
                  self.x[:1].expand(4, 16), self.x.flip(0)):
            for made in self.both(x, self.w):
                torch.testing.assert_close(made, functional.linear(x, self.w), **NEAR)
        for wrong in (self.w.half(), self.w.double(), self.w.int()):
            with self.assertRaises(tt._run.Error):
                tt.linear(self.x, wrong)

    def test_other_addresses(self):
        for device in DEVICES:
            room = torch.empty(4 * 16 + 4, device=device)
            weights = torch.randn(8, 16, device=device)
            for start in (0, 1, 2, 3, 4):
                x = room[start:start + 64].view(4, 16)
                x.copy_(torch.randn(4, 16))
                for made in self.both(x, weights):
                    torch.testing.assert_close(made, functional.linear(x, weights), **NEAR)

    def test_a_storage_without_memory_is_refused(self):
        x = torch.randn(4, 16)
        x.untyped_storage().resize_(0)
        for call in (tt.linear, ops.linear):
            with self.assertRaises(tt._run.Error):
                call(x, self.w)

    def test_subclasses(self):
        for x, w in ((self.x.as_subclass(Named), self.w), (self.x, self.w.as_subclass(Named))):
            for made in self.both(x, w):
                self.assertIs(Named, type(made))
                torch.testing.assert_close(made.as_subclass(torch.Tensor), self.want, **NEAR)

    def test_modes_see_every_call(self):
        with Counting() as counting:
            self.both(self.x, self.w)
        self.assertEqual(3, sum("tessera.linear" in name for name in counting.names))
        with Watching() as watching:
            self.both(self.x, self.w)
        self.assertGreaterEqual(watching.count, 3)
        with FakeTensorMode() as fake:
            x, w = fake.from_tensor(self.x), fake.from_tensor(self.w)
            for made in self.both(x, w):
                self.assertIsInstance(made, torch._subclasses.FakeTensor)
                self.assertEqual((4, 8), tuple(made.shape))

    def test_transforms_and_autocast(self):
        for call in (tt.linear, ops.linear, ops.linear.default):
            made = torch.vmap(lambda row: call(row[None], self.w)[0])(self.x)
            torch.testing.assert_close(made, self.want, **NEAR)
            grads = torch.func.grad(lambda x: call(x, self.w).sum())(self.x)
            torch.testing.assert_close(grads, self.w.sum(0).expand(4, 16), **NEAR)
            tangent = torch.func.jvp(lambda x: call(x, self.w), (self.x,), (self.x,))[1]
            torch.testing.assert_close(tangent, self.want, **NEAR)
            made = torch.func.functionalize(lambda x: call(x, self.w))(self.x)
            torch.testing.assert_close(made, self.want, **NEAR)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual(torch.bfloat16, call(self.x, self.w).dtype)
            torch.testing.assert_close(call(torch._neg_view(self.x), self.w), -self.want, **NEAR)
            with torch.inference_mode():
                self.assertTrue(call(self.x, self.w).is_inference())
            self.assertFalse(call(self.x, self.w).is_inference())

    def test_wrappers_without_memory(self):
        leaked = []
        torch.vmap(lambda row: leaked.append(row) or row)(self.x[None])
        emptied = torch.randn(4, 16)
        emptied.untyped_storage().resize_(0)
        for x in (torch._to_functional_tensor(self.x), *leaked, emptied, self.x.to("meta"),
                  self.x.to_sparse(), self.x.to_sparse_csr(), self.x.to_mkldnn(),
                  torch.nested.nested_tensor([self.x]), torch._neg_view(self.x),
                  torch._efficientzerotensor((4, 16))):
            self.assertIsNone(_warm.find(_ops.run_linear, x, self.w, None, None))
        self.assertEqual((4, 8), _warm.find(_ops.run_linear, self.x, self.w, None, None).shape)
        zero = torch._efficientzerotensor((4, 16))
        for made in self.both(zero, self.w):
            torch.testing.assert_close(made, torch.zeros(4, 8), **NEAR)

    def test_numbers_and_lists_that_say_the_same(self):
        image, filters = torch.randn(2, 4, 6, 6), torch.randn(4, 4, 3, 3)
        for stride in (1, (1, 1), [1, 1], 2, [2, 1], (1, 2)):
            for _ in range(2):
                torch.testing.assert_close(tt.conv2d(image, filters, stride=stride),
                                           functional.conv2d(image, filters, stride=stride), **NEAR)

    def test_a_number_in_a_tensor_is_read_at_each_call(self):
        number = torch.tensor(1)
        image, filters = torch.randn(2, 4, 6, 6), torch.randn(4, 4, 3, 3)
        for value in (1, 2, 1):
            number.fill_(value)
            for stride in ((number, number), [number, 1]):
                try:
                    made = tt.conv2d(image, filters, stride=stride)
                except (TypeError, tt._run.Error):
                    continue  # refused at each call
                torch.testing.assert_close(
                    made, functional.conv2d(image, filters, stride=tuple(int(s) for s in stride)),
                    **NEAR)

    def test_results_lie_and_are_as_pytorchs(self):
        for device in DEVICES:
            x, w = self.x.to(device), self.w.to(device)
            for made in [one for _ in range(2) for one in self.both(x, w)]:
                want = functional.linear(x, w)
                self.assertEqual((want.device, want.dtype, want.stride(), want.layout),
                                 (made.device, made.dtype, made.stride(), made.layout))
                self.assertTrue(made.is_leaf)
                made.resize_(3, 3).add_(1)  # it has memory of its own

    def test_several_threads(self):
        failures = []

        def work(size):
            x, w = torch.randn(size, 16), torch.randn(8, 16)
            want = functional.linear(x, w)
            for _ in range(200):
                for made in self.both(x, w):
                    if not torch.allclose(made, want, **NEAR):
                        failures.append(size)
        threads = [threading.Thread(target=work, args=(size,)) for size in (1, 4, 4, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], failures)

    @unittest.skipUnless("cuda" in DEVICES, "needs a GPU")
    def test_the_current_stream(self):
        x, w = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
        tt.linear(x, w), tt.linear(x, w)
        for _ in range(20):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
                value = torch.randn_like(x)
                made = tt.linear(value, w)
                want = functional.linear(value, w)
            side.synchronize()
            torch.testing.assert_close(made, want, rtol=1e-2, atol=1e-2 * 45)


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class OtherVersions(Spied):
    """What the extension does where PyTorch lacks the functions in C."""

    def tearDown(self):
        _warm.find = _warm._bound_call()
        _run.forget()

    def test_attributes_say_the_same_and_python_makes_results(self):
        types, rest = (torch.Tensor, torch.nn.Parameter), (torch.strided, None, torch.empty(2))
        for reading, making in (((*types, torch._C.TensorBase, *rest), None),
                                ((*types, object, *rest), ()), (None, ())):
            _run.forget()
            _warm._numbers.clear()
            _warm.find = _warm._bound_call(reading, making)
            for name, (ours, theirs, draw) in functions(DEVICES[-1]).items():
                with self.subTest(name), torch.no_grad():
                    tensors = draw()
                    for i in range(3):
                        said = self.said(lambda: ours(*tensors))
                        torch.testing.assert_close(ours(*tensors), theirs(*tensors), **NEAR)
                    self.assertEqual(["found"], said)


if __name__ == "__main__":
    unittest.main()
