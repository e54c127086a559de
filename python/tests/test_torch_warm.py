"""Calls of tessera.torch that were seen before: they go through the extension alone, and give what
the first one gave.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import random
import unittest

from test_torch import DEVICES, SEED, Case

import torch
import torch.nn.functional as functional

import tessera.torch as tt
from tessera import _warm as arrays_warm
from tessera.torch import _run, _warm

NEAR = dict(rtol=1e-3, atol=1e-4)


def setUpModule():
    torch.backends.cudnn.allow_tf32 = False  # PyTorch's answer is the reference
    print(f"test_torch_warm: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def functions(device="cpu"):
    """{name: (ours, PyTorch's, what draws their tensors)}; each draws other shapes and strides."""
    rng = random.Random(SEED)

    def draw(*shape):
        if rng.random() < 0.5 or len(shape) < 2:
            return torch.randn(*shape, device=device)
        return torch.randn(*shape[:-1], 2 * shape[-1], device=device)[..., :shape[-1]]

    def size():
        return rng.choice([1, 3, 8, 17])

    def linear():
        k, n = size(), size()
        return draw(size(), k), draw(n, k), rng.choice([None, draw(n)])

    def rows():
        n = size()
        return draw(size(), n), rng.choice([None, draw(n)])

    def heads():
        batch, heads, hdim = size(), rng.choice([1, 2]), rng.choice([8, 16])
        keys = size()
        return (draw(batch, heads, size(), hdim), draw(batch, heads, keys, hdim),
                draw(batch, heads, keys, hdim))

    def images():
        c, k = size(), size()
        return draw(size(), c, 5, 6), draw(k, c, 3, 3), rng.choice([None, draw(k)])

    return {
        "linear": (lambda x, w, b: tt.linear(x, w, b, "relu"),
                   lambda x, w, b: functional.linear(x, w, b).relu(), linear),
        "matmul": (lambda x, w, b: tt.matmul(x, w.T, b),
                   lambda x, w, b: x @ w.T + (0 if b is None else b), linear),
        "softmax": (lambda x, _: tt.softmax(x), lambda x, _: x.softmax(-1), rows),
        "rms_norm": (lambda x, s: tt.rms_norm(x, s, epsilon=1e-5),
                     lambda x, s: functional.rms_norm(x, x.shape[-1:], s, 1e-5), rows),
        "layer_norm": (lambda x, s: tt.layer_norm(x, s), lambda x, s: functional.layer_norm(
            x, x.shape[-1:], s), rows),
        "add_rms_norm": (lambda x, s: tt.rms_norm(x, s, residual=x)[1], lambda x, s: x + x, rows),
        "attention": (lambda q, k, v: tt.attention(q, k, v, layout="bhsd"),
                      functional.scaled_dot_product_attention, heads),
        "sdpa": (lambda q, k, v: tt.scaled_dot_product_attention(q, k, v, is_causal=True),
                 lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                 heads),
        "conv2d": (lambda x, w, b: tt.conv2d(x, w, b, padding=1),
                   lambda x, w, b: functional.conv2d(x, w, b, padding=1), images),
    }


@unittest.skipUnless(arrays_warm.has_fast(), "the extension _fast is not in this checkout")
class Warm(Case):

    def setUp(self):
        super().setUp()
        _run.forget()

    def found(self, call):
        """What the extension said of that call first."""
        seen, find = [], _warm.find

        def spy(*arguments):
            seen.append(find(*arguments))
            return seen[-1]
        _warm.find = spy
        try:
            call()
        finally:
            _warm.find = find
        return {list: "new", type(None): "not plain"}.get(type(seen[0]), "found")

    def test_the_second_call_of_every_function_is_found(self):
        for name, (ours, _, draw) in functions(DEVICES[-1]).items():
            with self.subTest(name), torch.no_grad():
                tensors = draw()
                self.assertEqual("new", self.found(lambda: ours(*tensors)))
                self.assertEqual("found", self.found(lambda: ours(*tensors)))

    def test_random_calls_in_turns_are_pytorchs(self):
        rng = random.Random(SEED)
        tables = [functions(device) for device in DEVICES]
        drawn = [(table, name, table[name][2]()) for table in tables for name in list(table) * 6]
        with torch.no_grad():
            for table, name, tensors in rng.choices(drawn, k=400):
                fresh = [None if t is None else t.copy_(torch.randn_like(t)) for t in tensors]
                ours, theirs, _ = table[name]
                lie = [None if t is None else (t.shape, t.stride()) for t in tensors]
                with self.subTest(f"{name} {lie}"):
                    torch.testing.assert_close(ours(*fresh), theirs(*fresh), **NEAR)

    def test_results_are_new_each_time(self):
        for name, (ours, _, draw) in functions(DEVICES[-1]).items():
            with self.subTest(name), torch.no_grad():
                tensors = draw()
                results = [ours(*tensors) for _ in range(3)]
                self.assertEqual(3, len({result.data_ptr() for result in results}))
                for result in results[1:]:
                    torch.testing.assert_close(result, results[0], rtol=0, atol=0)

    def test_a_gradient_that_is_asked_for_later_flows(self):
        for name, (ours, theirs, draw) in functions().items():
            with self.subTest(name):
                tensors = draw()
                with torch.no_grad():
                    ours(*tensors), ours(*tensors)
                grads = []
                for function in (ours, theirs):
                    first = tensors[0].detach().clone().requires_grad_()
                    function(first, *tensors[1:]).square().sum().backward()
                    grads.append(first.grad)
                torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-3)

    def test_other_interpretations_of_a_call_are_pytorchs(self):
        x, w = torch.randn(4, 16), torch.randn(8, 16)
        with torch.no_grad():
            for _ in range(2):
                want = tt.linear(x, w)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual(torch.bfloat16, tt.linear(x, w).dtype)
            torch.testing.assert_close(torch.vmap(lambda row: tt.linear(row[None], w)[0])(x), want,
                                       **NEAR)
            torch.testing.assert_close(tt.linear(torch._neg_view(x), w), -want, **NEAR)
            with torch.inference_mode():
                torch.testing.assert_close(tt.linear(x, w), want, rtol=0, atol=0)
            traced = torch.jit.trace(lambda a: tt.linear(a, w), x, check_trace=False)
            torch.testing.assert_close(traced(2 * x), 2 * want, **NEAR)

        class Named(torch.Tensor):
            pass
        self.assertIs(Named, type(tt.linear(x.as_subclass(Named), w)))
        tangent = torch.func.jvp(lambda a: tt.linear(a, w), (x,), (x,))[1]
        torch.testing.assert_close(tangent, want, **NEAR)

    def test_numbers_that_change_in_place_are_read_again(self):
        x, scale = torch.randn(4, 16), torch.tensor(0.5)
        q = torch.randn(1, 2, 3, 8)
        with torch.no_grad():
            for value in (0.5, 0.25, 2.0):
                scale.fill_(value)
                torch.testing.assert_close(
                    tt.scaled_dot_product_attention(q, q, q, scale=scale),
                    functional.scaled_dot_product_attention(q, q, q, scale=value), **NEAR)
                self.assertFalse(torch.equal(tt.rms_norm(x, epsilon=value),
                                             tt.rms_norm(x, epsilon=value / 2)))

    def test_settings_make_other_plans(self):
        x, w = torch.randn(4, 16), torch.randn(8, 16)
        with torch.no_grad():
            for _ in range(2):
                tt.linear(x, w)
            threads = torch.get_num_threads()
            for change, back in ((lambda: torch.set_num_threads(threads + 1),
                                  lambda: torch.set_num_threads(threads)),
                                 (lambda: torch.use_deterministic_algorithms(True),
                                  lambda: torch.use_deterministic_algorithms(False)),
                                 (lambda: tt.use_batch_invariant_kernels(True),
                                  lambda: tt.use_batch_invariant_kernels(False))):
                change()
                try:
                    self.assertEqual("new", self.found(lambda: tt.linear(x, w)))
                finally:
                    back()
            self.assertEqual("found", self.found(lambda: tt.linear(x, w)))

    def test_what_fails_fails_each_time(self):
        x, w = torch.randn(4, 16), torch.randn(8, 17)
        for _ in range(3):
            with self.assertRaises(tt._run.Error):
                tt.linear(x, w)


if __name__ == "__main__":
    unittest.main()
