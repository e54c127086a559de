"""Products of 8-bit floats with scales against NumPy in fp64."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import Case, random_numbers, wide

E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu


class Scaled(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype=E4M3):
        return self.random.standard_normal(shape).astype(dtype)

    def scales(self, *shape):
        return self.random.uniform(0.5, 2, shape).astype("float32")

    def powers(self, *shape):
        return (2.0 ** self.random.integers(-6, 7, shape)).astype(E8M0)

    def near(self, got, a, b, bias=0.0):
        """a and b: with their scales, in fp64."""
        bound = abs(a) @ abs(b) * (2.0**-9 + a.shape[1] * 2.0**-23) + 2.0**-8 * abs(a @ b + bias)
        self.assertLessEqual(numpy.max(abs(wide(got) - (a @ b + bias)) - bound, initial=-1), 1e-6)

    def test_blocks_in_fp32_in_both_orders(self):
        m, n, k = 130, 140, 300
        a, b = self.draw(m, k), self.draw(k, n, dtype=E5M2)
        of_a, of_b = self.scales(m, 3), self.scales(3, 2)
        wide_a = wide(a) * of_a.repeat(128, 1)[:, :k]
        wide_b = wide(b) * of_b.repeat(128, 0).repeat(128, 1)[:k, :n]
        for scale_a in (of_a, numpy.asfortranarray(of_a)):
            for out_dtype in ("float32", "bfloat16", numpy.float16):
                got = tessera.scaled_matmul(a, b, scale_a=scale_a, scale_b=of_b,
                                            out_dtype=out_dtype)
                self.near(got, wide_a, wide_b)
        weight = numpy.ascontiguousarray(b.T).T  # by columns, as weights lie
        bias = self.scales(n)
        out = numpy.empty((m, n), "float32")
        got = tessera.scaled_matmul(a, weight, scale_a=of_a, scale_b=of_b, bias=bias, out=out)
        self.assertIs(got, out)
        self.near(got, wide_a, wide_b, bias)

    def test_mxfp8(self):
        m, n, k = 33, 20, 100
        a, b = self.draw(m, k), self.draw(k, n)
        of_a, of_b = self.powers(m, 4), self.powers(n, 4)
        got = tessera.scaled_matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32")
        self.near(got, wide(a) * wide(of_a).repeat(32, 1)[:, :k],
                  wide(b) * wide(of_b).repeat(32, 1)[:, :k].T)

    def test_rows_and_matrices(self):
        m, n, k = 17, 19, 40
        a, b, bias = self.draw(m, k), self.draw(k, n), self.scales(n)
        for of_a in (self.scales(m, 1), self.scales(1), self.scales(1).reshape(())):
            for of_b in (self.scales(1, n), self.scales(1)):
                got = tessera.scaled_matmul(a, b, scale_a=of_a, scale_b=of_b, bias=bias)
                self.near(got, wide(a) * of_a, wide(b) * of_b, bias)

    def test_nothing_to_add(self):
        got = tessera.scaled_matmul(self.draw(3, 0), self.draw(0, 4), scale_a=self.scales(3, 0),
                                    scale_b=self.scales(0, 4), out_dtype="float32")
        self.assertTrue((got == 0).all())

    def refused(self, sentence, a, b, **given):
        with self.assertRaises(tessera.Error) as caught:
            tessera.scaled_matmul(a, b, **given)
        self.assertIn(sentence, str(caught.exception))

    def test_scales_that_do_not_match(self):
        a, b = self.draw(130, 300), self.draw(300, 20)
        one = self.scales(1)
        self.refused("scale_a must have 1 number or one of the shapes (130,), (130, 1), (130, 3), "
                     "(2, 3), (130, 10) for 130 rows and 300 elements along k, got (130, 4)",
                     a, b, scale_a=self.scales(130, 4), scale_b=one)
        self.refused("scale_b must have 1 number or one of the shapes (20,), (1, 20), (3, 20), "
                     "(3, 1), (10, 20) for 20 columns and 300 elements along k, got (20, 3)",
                     a, b, scale_a=one, scale_b=self.scales(20, 3))
        self.refused("must both be for blocks, or for whole rows, columns or matrices, got the "
                     "shapes (130, 3) and (1, 20)", a, b, scale_a=self.scales(130, 3),
                     scale_b=self.scales(1, 20))
        self.refused("must have one type, got float8_e8m0fnu and float32", a, b,
                     scale_a=self.powers(130, 10), scale_b=one)
        self.refused("scale_a must have the type float32 or float8_e8m0fnu, got float64", a, b,
                     scale_a=one.astype("float64"), scale_b=one)
        self.refused("a must have the type float8_e4m3fn or float8_e5m2, got float32",
                     wide(a).astype("float32"), b, scale_a=one, scale_b=one)
        self.refused("a has 300 columns and b has 20 rows", a, b.T, scale_a=one, scale_b=one)


if __name__ == "__main__":
    unittest.main()
