"""gated_linear: results and gradients beside PyTorch's, in every type, form and activation.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import itertools
import unittest

from test_torch import SEED, Case

import torch

import tessera
import tessera.torch as tt


def setUpModule():
    print(f"test_torch_gated: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
}


def expected(x, weight, bias, activation, interleaved):
    z = torch.nn.functional.linear(x, weight, bias)
    u, v = (z[..., 0::2], z[..., 1::2]) if interleaved else z.chunk(2, -1)
    return ACTIVATIONS[activation](u) * v


class GatedLinear(Case):
    def operands(self, dtype, has_bias):
        k, f = self.random.randint(1, 70), self.random.randint(1, 70)
        shape = self.random.choice([(), (5,), (3, 4), (0,)])
        x = torch.randn(*shape, k, dtype=dtype)
        weight = torch.randn(2 * f, k, dtype=dtype) * k ** -0.5
        return x, weight, torch.randn(2 * f, dtype=dtype) if has_bias else None

    def test_results_are_those_of_the_parts(self):
        for dtype, activation, interleaved, has_bias in itertools.product(
                (torch.float32, torch.bfloat16, torch.float16), ACTIVATIONS, (False, True),
                (False, True)):
            x, weight, bias = self.operands(dtype, has_bias)
            with self.subTest(dtype=dtype, activation=activation, x=x.shape, weight=weight.shape):
                got = tt.gated_linear(x, weight, bias, activation=activation,
                                      interleaved=interleaved)
                wide = [None if t is None else t.double() for t in (x, weight, bias)]
                want = expected(*wide, activation, interleaved)
                self.assertEqual(got.dtype, dtype)
                bound = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}[dtype]
                torch.testing.assert_close(got.double(), want, rtol=bound, atol=bound)

    def test_gradients_are_those_of_the_parts(self):
        for activation, interleaved, has_bias in itertools.product(ACTIVATIONS, (False, True),
                                                                   (False, True)):
            given = [None if t is None else t.requires_grad_()
                     for t in self.operands(torch.float32, has_bias)]
            with self.subTest(activation=activation, interleaved=interleaved):
                got = tt.gated_linear(*given, activation=activation, interleaved=interleaved)
                want = expected(*given, activation, interleaved)
                grad = torch.randn_like(want)
                inputs = [t for t in given if t is not None]
                for ours, theirs in zip(torch.autograd.grad(got, inputs, grad),
                                        torch.autograd.grad(want, inputs, grad)):
                    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)

    def test_refusals_are_sentences(self):
        x, weight = torch.randn(3, 4), torch.randn(6, 4)
        for arguments, named, sentence in (
                ((x, weight), {"activation": "relu"},
                 "activation must be one of silu, gelu, gelu_tanh, got 'relu'"),
                ((x, torch.randn(5, 4)), {}, "even number of rows"),
                ((torch.randn(3, 5), weight), {}, "as long as weight's rows"),
                ((x, weight, torch.randn(3)), {}, "an element for each row of weight")):
            with self.assertRaisesRegex((tessera.Error, RuntimeError), sentence):
                tt.gated_linear(*arguments, **named)


if __name__ == "__main__":
    unittest.main()
