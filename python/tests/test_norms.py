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

    def test_gates(self):
        for dtype in ("float32", "float16", ml_dtypes.bfloat16):
            for interleaved in (False, True):
                x = self.draw(3, 5, 66, dtype=dtype)
                gate, up = ((x[..., ::2], x[..., 1::2]) if interleaved
                            else (x[..., :33], x[..., 33:]))
                gate, up = wide(gate), wide(up)
                self.near(tessera.silu_mul(x, interleaved=interleaved),
                          gate / (1 + numpy.exp(-gate)) * up, 1)
                inner = numpy.sqrt(2 / numpy.pi) * (gate + 0.044715 * gate**3)
                self.near(tessera.gelu_mul(x, approximate="tanh", interleaved=interleaved),
                          gate * (1 + numpy.tanh(inner)) / 2 * up, 1)
        self.assertEqual(tessera.gelu_mul(self.draw(0, 4)).shape, (0, 2))

    def quantised_near(self, out, scales, wanted, width):
        largest = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}[out.dtype.name]
        step = 2.0**-4 if largest == 448 else 2.0**-3
        by = numpy.repeat(scales, width, -1)[..., :wanted.shape[-1]].astype("float64")
        for first in range(0, wanted.shape[-1], width):
            part = abs(wanted[..., first:first + width]).max(-1)
            numpy.testing.assert_allclose(scales[..., first // width], part / largest, rtol=1e-3)
        self.assert_near(out.astype("float64") * by, wanted,
                         abs(wanted) * step * 1.01 + by * 2.0**-9)

    def test_quantised(self):
        for by_column, dtype in ((False, "float8_e4m3fn"), (True, "float8_e5m2")):
            x, residual, scale = self.draw(3, 4, 300), self.draw(3, 4, 300), self.draw(300)
            for _ in range(2):
                out, scales, total = tessera.rms_norm_quantised(
                    x, scale, residual=residual, quant="block", scales_by_column=by_column,
                    dtype=dtype)
            s = wide(x) + wide(residual)
            wanted = s / numpy.sqrt((s * s).mean(-1, keepdims=True) + 1e-5) * scale
            numpy.testing.assert_array_equal(total, x + residual)
            self.assertEqual(scales.shape, (3, 4, 3))
            self.assertEqual(scales.strides, (16, 4, 48) if by_column else (48, 12, 4))
            self.quantised_near(out, scales, wanted, 128)
            c = wide(x) - wide(x).mean(-1, keepdims=True)
            wanted = c / numpy.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
            self.quantised_near(*tessera.layer_norm_quantised(x, dtype=dtype), wanted, 300)
            gate, up = wide(x[..., :150]), wide(x[..., 150:])
            self.quantised_near(*tessera.silu_mul_quantised(x, dtype=dtype),
                                gate / (1 + numpy.exp(-gate)) * up, 150)
            self.quantised_near(*tessera.quantise(x, quant="block", dtype=dtype), wide(x), 128)
        given = numpy.float32([[2.0]])
        out, scales = tessera.silu_mul_quantised(x, quant="tensor", out_scale=given)
        self.assertIs(scales, given)

    def test_refusals_of_gates_and_8_bits(self):
        x = self.draw(4, 6)
        self.assert_refused("even number of columns", tessera.silu_mul, x[:, :5])
        self.assert_refused("approximate must be 'none' or 'tanh'", tessera.gelu_mul, x,
                            approximate="fast")
        self.assert_refused("out must have the shape .4, 3., got .4, 6.", tessera.silu_mul, x,
                            out=x.copy())
        self.assert_refused("quant must be one of tensor, row, block, got 'column'",
                            tessera.rms_norm_quantised, x, quant="column")
        self.assert_refused("out_scale is given with quant='tensor' and not otherwise, got none",
                            tessera.rms_norm_quantised, x, quant="tensor")
        self.assert_refused("dtype must be float8_e4m3fn or float8_e5m2, got float16",
                            tessera.rms_norm_quantised, x, dtype="float16")
        self.assert_refused("out_scale must be one float32, got .2,.", tessera.rms_norm_quantised,
                            x, quant="tensor", out_scale=numpy.float32([1, 2]))

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
