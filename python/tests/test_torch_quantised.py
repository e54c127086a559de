"""Normalisations in 8 bits beside PyTorch's formulas, on a CPU.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import math
import random
import unittest

from test_torch import SEED

import torch

import tessera
import tessera.torch

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def gated(x, kind, interleaved):
    half = x.shape[-1] // 2
    gate, up = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    if kind == "silu":
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(gate, approximate="none" if kind == "gelu" else "tanh") * up


def call(kind, x, interleaved, quantised):
    if kind == "silu":
        function = tessera.torch.silu_mul_quantised if quantised else tessera.torch.silu_mul
        return function(x, interleaved=interleaved)
    function = tessera.torch.gelu_mul_quantised if quantised else tessera.torch.gelu_mul
    return function(x, interleaved=interleaved, approximate="none" if kind == "gelu" else "tanh")


class Quantised(unittest.TestCase):
    def setUp(self):
        self.numbers = random.Random(SEED)
        torch.manual_seed(SEED)

    def check(self, function, peer):
        draw = self.numbers
        columns, dtype = draw.randrange(1, 700), draw.choice(list(LARGEST))
        quant, by_column = draw.choice(("row", "block", "tensor")), draw.random() < 0.5
        shape = (draw.randrange(1, 5), draw.randrange(1, 4), columns)
        x, residual, scale = torch.randn(shape), torch.randn(shape), torch.randn(columns)
        given = torch.tensor([0.01]) if quant == "tensor" else None
        with self.subTest(seed=SEED, function=function.__name__, shape=shape, quant=quant):
            out, scales, total = function(x, scale, residual=residual, quant=quant, dtype=dtype,
                                          out_scale=given,
                                          scales_by_column=quant == "block" and by_column)
            self.assertTrue(torch.equal(total, x + residual))
            exact = peer((x + residual).double(), (columns,), scale.double(), eps=1e-5)
            width = 128 if quant == "block" else columns
            for first in range(0, columns, width):
                part = exact[..., first:first + width]
                by = given.double() if quant == "tensor" else scales[..., first // width, None]
                if quant != "tensor":
                    most = part.abs().amax(-1, keepdim=True) / LARGEST[dtype]
                    torch.testing.assert_close(by.double(), most, rtol=1e-4, atol=0)
                bound = (part / by).clamp(-LARGEST[dtype], LARGEST[dtype])
                got = out[..., first:first + width].double()
                step = torch.finfo(dtype).eps
                self.assertTrue(bool(((got - bound).abs() <= bound.abs() * step * 0.51 + 0.002)
                                     .all()))

    def test_rms_norm_and_layer_norm(self):
        for _ in range(6):
            self.check(tessera.torch.rms_norm_quantised,
                       lambda x, n, scale, eps: torch.nn.functional.rms_norm(x, n, scale, eps))
            self.check(lambda x, scale, **rest: tessera.torch.layer_norm_quantised(
                           x, scale, None, **rest),
                       lambda x, n, scale, eps: torch.nn.functional.layer_norm(x, n, scale, None,
                                                                               eps))

    def test_gates(self):
        for kind in ("silu", "gelu", "gelu_tanh"):
            for interleaved in (False, True):
                x = torch.randn(self.numbers.randrange(1, 9), 2 * self.numbers.randrange(1, 400))
                with self.subTest(seed=SEED, kind=kind, interleaved=interleaved, shape=x.shape):
                    exact = gated(x.double(), kind, interleaved)
                    out, scales = call(kind, x, interleaved, True)
                    bound = exact / scales.double()
                    self.assertTrue(bool(((out.double() - bound).abs() <=
                                          bound.abs() * 0.0626 + 0.002).all()))
                    torch.testing.assert_close(call(kind, x, interleaved, False).double(), exact,
                                               rtol=1e-5, atol=1e-5)

    def test_quantise(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = torch.randn(self.numbers.randrange(1, 9), self.numbers.randrange(1, 700))
            x = x.to(dtype)
            with self.subTest(seed=SEED, dtype=dtype, shape=x.shape):
                out, scales = tessera.torch.quantise(x, quant="block")
                blocks = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % 128)).unflatten(
                    1, (-1, 128))
                most = blocks.abs().amax(2)
                torch.testing.assert_close(scales, most / 448, rtol=1e-6, atol=0)
                got = out.double() * scales.double().repeat_interleave(128, 1)[:, :x.shape[1]]
                bound = x.double().abs() * 2**-4 + 2.0**-10 * scales.double().amax()
                self.assertTrue(bool(((got - x.double()).abs() <= bound).all()))

    def test_gradients_of_gates(self):
        for kind in ("silu", "gelu", "gelu_tanh"):
            for interleaved in (False, True):
                x = torch.randn(3, 10)
                found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
                call(kind, found, interleaved, False).square().sum().backward()
                gated(wanted, kind, interleaved).square().sum().backward()
                torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-4)
                tangent = torch.randn(3, 10)
                _, got = torch.func.jvp(lambda y: call(kind, y, interleaved, False), (x,),
                                        (tangent,))
                _, exact = torch.func.jvp(lambda y: gated(y, kind, interleaved), (x,), (tangent,))
                torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-4)

    def test_quantised_results_have_no_gradient_and_say_so(self):
        out, scales = tessera.torch.rms_norm_quantised(torch.randn(2, 8, requires_grad=True))
        with self.assertRaisesRegex(tessera.Error, "results of 8 bits have no derivative"):
            scales.sum().backward()

    def test_compiled_and_without_memory(self):
        x, scale = torch.randn(2, 3, 300), torch.randn(300)
        for quant, by_column in (("row", False), ("block", True), ("tensor", False)):
            given = torch.tensor([0.5]) if quant == "tensor" else None

            def function(x, scale):
                made = tessera.torch.rms_norm_quantised(
                    tessera.torch.silu_mul(torch.cat((x, x), -1)), scale, residual=x, quant=quant,
                    out_scale=given, scales_by_column=by_column)
                return made[0].float(), *made[1:]
            compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
            for got, wanted in zip(compiled(x, scale), function(x, scale)):
                self.assertTrue(torch.equal(got, wanted))
                self.assertEqual(got.stride(), wanted.stride())
            made = tessera.torch.silu_mul_quantised(torch.empty(4, 600, device="meta"),
                                                    quant="block")
            self.assertEqual([tuple(one.shape) for one in made], [(4, 300), (4, 3)])

    def test_zeros_have_the_scale_one(self):
        out, scales = tessera.torch.rms_norm_quantised(torch.zeros(3, 300), quant="block")
        self.assertEqual(scales.tolist(), [[1.0] * 3] * 3)
        self.assertEqual(float(out.float().abs().max()), 0)

    def test_refusals(self):
        x = torch.zeros(2, 8)
        for rest, sentence in (
                ({"quant": "column"}, "quant must be one of tensor, row, block, got 'column'"),
                ({"quant": "tensor"}, "out_scale is given with quant='tensor' and not otherwise, "
                                      "got none with quant='tensor'"),
                ({"out_scale": torch.ones(1)}, "got one with quant='row'"),
                ({"scale": torch.ones(7)}, "scale must have the shape (8,), got (7,)"),
                ({"dtype": torch.float16}, "dtype must be torch.float8_e4m3fn or "
                                           "torch.float8_e5m2, got torch.float16")):
            with self.assertRaises(tessera.Error) as caught:
                tessera.torch.rms_norm_quantised(x, **rest)
            self.assertIn(sentence, str(caught.exception))
        self.assertFalse(math.isnan(float(x.sum())))


if __name__ == "__main__":
    unittest.main()
