"""Normalisations against NumPy in fp64."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROUNDING, Case, random_numbers, wide

# Roundings of fp32 in a sum of n terms and in the functions after it, as a part of the result.
FEW = 64


class Norms(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def near(self, got, wanted, columns, scale=1.0):
        largest = numpy.maximum(abs(wanted), scale)
        parts = (columns + FEW) * 2.0**-24 + ROUNDING[got.dtype.name]
        self.assert_near(got, wanted, parts * largest)

    def test_softmax(self):
        for dtype in ("float32", "float16", ml_dtypes.bfloat16):
            x = self.draw(7, 33, dtype=dtype)
            e = numpy.exp(wide(x) - wide(x).max(-1, keepdims=True))
            self.near(tessera.softmax(x), e / e.sum(-1, keepdims=True), 33)

    def test_softmax_in_place_and_of_rows_with_gaps(self):
        memory = self.draw(2, 5, 40)
        x = memory[..., :32]
        e = numpy.exp(wide(x))
        wanted = e / e.sum(-1, keepdims=True)
        self.assertIs(tessera.softmax(x, out=x), x)
        self.near(x, wanted, 32)

    def test_layer_norm(self):
        x, scale, shift = self.draw(3, 4, 50), self.draw(50), self.draw(50)
        for options in ({}, {"scale": scale}, {"scale": scale, "shift": shift}):
            for _ in range(2):
                out = numpy.empty_like(x)
                tessera.layer_norm(x, out=out, **options)
            c = wide(x) - wide(x).mean(-1, keepdims=True)
            wanted = c / numpy.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
            wanted = wanted * options.get("scale", 1.0) + options.get("shift", 0.0)
            self.near(out, wanted, 50, 4.0)

    def test_rms_norm_with_residual(self):
        x, scale, residual = self.draw(6, 20), self.draw(20), self.draw(6, 20)
        for _ in range(2):
            out, total = tessera.rms_norm(x, scale, residual=residual, out=numpy.empty_like(x),
                                          sum=numpy.empty_like(x))
        s = wide(x) + wide(residual)
        wanted = s / numpy.sqrt((s * s).mean(-1, keepdims=True) + 1e-5) * scale
        numpy.testing.assert_array_equal(total, x + residual)
        self.near(out, wanted, 20, 4.0)

    def test_empty(self):
        self.assertEqual(tessera.softmax(self.draw(0, 4)).shape, (0, 4))
        self.assertEqual(tessera.softmax(self.draw(4)).shape, (4,))

    def test_refusals(self):
        x = self.draw(4, 6)
        self.assert_refused("out must have the shape .4, 6., got .6, 4.", tessera.softmax, x,
                            out=x.T.copy())
        self.assert_refused("strides .1, 6. over .6, 4.", tessera.softmax, x.T)
        self.assert_refused("scale must have the shape .6,. and the stride 1", tessera.rms_norm, x,
                            x[0, :3])
        self.assert_refused("there is no residual", tessera.rms_norm, x, sum=x.copy())
        self.assert_refused("float64", tessera.softmax, x.astype("float64"))
        self.assert_refused("epsilon must be finite", tessera.rms_norm, x, epsilon=float("nan"))


if __name__ == "__main__":
    unittest.main()
