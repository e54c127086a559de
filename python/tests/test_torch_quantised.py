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
                ({"dtype": torch.float16}, "out must be fp8 or bf8 with quant=row, got fp16")):
            with self.assertRaises(tessera.Error) as caught:
                tessera.torch.rms_norm_quantised(x, **rest)
            self.assertIn(sentence, str(caught.exception))
        self.assertFalse(math.isnan(float(x.sum())))


if __name__ == "__main__":
    unittest.main()
