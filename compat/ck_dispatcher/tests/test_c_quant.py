"""The C library of products with scales; TESSERA_CK_LIBS names the folder in which it was built."""
import ctypes
import os
import unittest

import numpy

from support import SEED, Case

LIBS = os.environ.get("TESSERA_CK_LIBS", "")
M, N, K = 20, 130, 200
# Every code of E4M3 whose magnitude is at most 2: of the sign, 4 bits of exponent and 3.
CODES = numpy.array([code for code in range(256) if code & 0x7f <= 0x40], "uint8")


def value_of(codes):
    """Numbers of E4M3 in fp64."""
    exponent, fraction = (codes >> 3 & 15).astype("int64"), (codes & 7) / 8.0
    magnitude = numpy.where(exponent == 0, fraction * 2.0**-6,
                            (1 + fraction) * 2.0 ** (exponent - 7))
    return numpy.where(codes & 0x80, -magnitude, magnitude)


def along(scales, block):
    return scales.astype("float64").repeat(block, 1)[:, :K]


@unittest.skipUnless(LIBS, "TESSERA_CK_LIBS names no folder with the libraries")
class Quant(Case):
    @classmethod
    def setUpClass(cls):
        cls.lib = ctypes.CDLL(os.path.join(LIBS, "libdispatcher_gemm_quant_lib.so"))
        cls.lib.dispatcher_quant_last_error.restype = ctypes.c_char_p
        assert cls.lib.dispatcher_quant_initialize() == 0

    @classmethod
    def tearDownClass(cls):
        cls.lib.dispatcher_quant_cleanup()

    def setUp(self):
        self.random = numpy.random.default_rng(SEED)
        self.a, self.b = (self.random.choice(CODES, (rows, K)) for rows in (M, N))

    def scales(self, *shape):
        return self.random.uniform(0.1, 0.5, shape).astype("float32")

    def call(self, name, arrays, sizes, k_batch=1):
        """The result, which may stand among the arrays as None, and what the function returned."""
        out, time = numpy.full((M, N), 7, "float16"), ctypes.c_float(-1)
        places = [ctypes.c_void_p(out.ctypes.data if x is None else x.ctypes.data if x.size
                                  else None) for x in arrays]
        status = getattr(self.lib, name)(*places, *map(ctypes.c_int64, sizes),
                                         ctypes.c_int(k_batch), ctypes.byref(time))
        self.assertEqual(time.value > 0, status == 0)
        return out, status

    def near(self, result, a, b):
        out, status = result
        self.assertEqual(status, 0, self.lib.dispatcher_quant_last_error())
        bound = abs(a) @ abs(b.T) * 2.0**-9 + 2.0**-10
        self.assertLessEqual((abs(out - a @ b.T) - bound).max(), 0)

    def test_both_in_blocks(self):
        for rows, block in ((1, 32), (1, 128), (128, 128)):
            of_a = self.scales(M, -(-K // 128))
            of_b = self.scales(-(-N // rows), -(-K // block))
            sizes = (M, N, K, K, K, N, of_a.shape[1], of_b.shape[1], 128, block, rows)
            arrays = (self.a, self.b, of_a, of_b, None)
            self.near(self.call("dispatcher_run_abquant_gemm", arrays, sizes),
                      value_of(self.a) * along(of_a, 128),
                      value_of(self.b) * along(of_b.repeat(rows, 0)[:N], block))

    def test_one_in_blocks(self):
        of_a, of_b = self.scales(M, 2), self.scales(2, 2)
        self.near(self.call("dispatcher_run_aquant_gemm", (self.a, self.b, of_a, None),
                            (M, N, K, K, K, N, 2, 128)),
                  value_of(self.a) * along(of_a, 128), value_of(self.b))
        self.near(self.call("dispatcher_run_bquant_gemm", (self.a, self.b, of_b, None),
                            (M, N, K, K, K, N, 2, 128, 128)),
                  value_of(self.a), value_of(self.b) * along(of_b.repeat(128, 0)[:N], 128))

    def test_microscales(self):
        of_a, of_b = (self.random.integers(124, 128, (rows, 7)).astype("uint8") for rows in (M, N))
        self.near(self.call("dispatcher_run_mx_gemm", (self.a, self.b, None, of_a, of_b),
                            (M, N, K)),
                  value_of(self.a) * along(2.0 ** (of_a - 127.0), 32),
                  value_of(self.b) * along(2.0 ** (of_b - 127.0), 32))

    def test_rows_columns_and_tensors(self):
        for name, of_a, of_b in (
                ("dispatcher_run_rowcolquant_gemm", self.scales(M, 1), self.scales(N, 1)),
                ("dispatcher_run_tensorquant_gemm", self.scales(1, 1), self.scales(1, 1))):
            self.near(self.call(name, (self.a, self.b, of_a, of_b, None), (M, N, K, K, K, N)),
                      value_of(self.a) * of_a, value_of(self.b) * of_b)

    def refused(self, status, sentence, *call, **more):
        out, got = self.call(*call, **more)
        self.assertEqual(got, status)
        self.assertIn(sentence, self.lib.dispatcher_quant_last_error().decode())
        self.assertTrue((out == 7).all())

    def test_what_does_not_fit(self):
        name, of_a, of_b = "dispatcher_run_abquant_gemm", self.scales(M, 2), self.scales(N, 2)
        arrays, sizes = (self.a, self.b, of_a, of_b, None), (M, N, K, K, K, N, 2, 2)
        self.refused(-3, "QN_B and QK_B must be 1 and 32, 1 and 128 or 128 and 128, got 64 and 128",
                     name, arrays, (*sizes, 128, 128, 64))
        self.refused(-3, "and QK_A must be 1 and 32, 1 and 128 or 128 and 128, got 1 and 64",
                     name, arrays, (*sizes, 64, 128, 1))
        self.refused(-1, "k_batch must be at least 1, got 0", name, arrays, (*sizes, 128, 128, 1),
                     k_batch=0)
        self.refused(-1, "M, N and K must be at least 1, got 0, 130 and 200", name, arrays,
                     (0, *sizes[1:], 128, 128, 1))
        self.refused(-1, "A, B, C and the scales must not be null", "dispatcher_run_mx_gemm",
                     (self.a, self.b, None, of_a[:0], of_b), (M, N, K))


if __name__ == "__main__":
    unittest.main()
