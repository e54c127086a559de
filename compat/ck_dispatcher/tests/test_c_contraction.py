"""The C library of contractions; TESSERA_CK_LIBS names the folder in which it was built."""
import ctypes
import os
import unittest

import numpy

from support import SEED, Case

LIBS = os.environ.get("TESSERA_CK_LIBS", "")


@unittest.skipUnless(LIBS, "TESSERA_CK_LIBS names no folder with the libraries")
class Contraction(Case):
    @classmethod
    def setUpClass(cls):
        cls.lib = ctypes.CDLL(os.path.join(LIBS, "libdispatcher_contraction_lib.so"))
        cls.lib.dispatcher_contraction_last_error.restype = ctypes.c_char_p
        assert cls.lib.dispatcher_contraction_initialize() == 0

    @classmethod
    def tearDownClass(cls):
        cls.lib.dispatcher_contraction_cleanup()

    def setUp(self):
        self.random = numpy.random.default_rng(SEED)

    def draw(self, *shape):
        return self.random.uniform(-1, 1, shape).astype("float16")

    @staticmethod
    def addresses(arrays):
        return (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])

    def contract(self, g, m, n, k, k_batch=1):
        a, b = self.draw(*g, *m, *k), self.draw(*g, *n, *k)
        ds = [self.draw(*g, *m, *n) for _ in range(self.lib.dispatcher_get_num_d_tensors())]
        out, time = numpy.full((*g, *m, *n), 7, "float16"), ctypes.c_float(-1)
        dims = []
        for sizes in (g, m, n, k):
            dims += [(ctypes.c_int64 * max(len(sizes), 1))(*sizes), ctypes.c_int(len(sizes))]
        status = self.lib.dispatcher_run_batched_contraction(
            *[ctypes.c_void_p(x.ctypes.data) for x in (a, b, out)], *dims, ctypes.c_int(k_batch),
            ctypes.byref(time), self.addresses(ds))
        return a, b, ds, out, status

    def test_any_numbers_of_dimensions(self):
        count = lambda sizes: int(numpy.prod(sizes, dtype="int64"))
        for g, m, n, k in (((), (5,), (6,), (7,)), ((3,), (5,), (6,), (7,)),
                           ((2, 3), (4, 5), (6, 2), (3, 8)), ((2,), (3, 2, 4), (5,), (2, 2, 2))):
            with self.subTest(g=g, m=m, n=n, k=k):
                a, b, ds, out, status = self.contract(g, m, n, k)
                self.assertEqual(status, 0, self.lib.dispatcher_contraction_last_error())
                wide = [x.astype("float64") for x in (a, b)]
                product = numpy.matmul(
                    wide[0].reshape(count(g), count(m), count(k)),
                    wide[1].reshape(count(g), count(n), count(k)).transpose(0, 2, 1))
                wanted = product.reshape(out.shape) + sum(d.astype("float64") for d in ds)
                self.assertLessEqual(abs(out - wanted).max(), 2.0**-10 * (abs(wanted).max() + 4))

    def test_refusals(self):
        self.assertEqual(self.contract((2,), (0,), (3,), (4,))[4], -1)
        self.assertIn(b"M dimensions must be at least 1, got 0",
                      self.lib.dispatcher_contraction_last_error())
        self.assertEqual(self.contract((2,), (1,), (3,), (4,), k_batch=0)[4], -1)

    def test_several_sources(self):
        m, n, k = 20, 33, 40
        numbers = [getattr(self.lib, f"dispatcher_get_num_{x}_tensors")() for x in "abd"]
        sources = [[self.draw(*shape) for _ in range(count)]
                   for count, shape in zip(numbers, ((m, k), (n, k), (m, n)))]
        out, time = numpy.full((m, n), 7, "float16"), ctypes.c_float(-1)
        status = self.lib.dispatcher_run_multi_abd_gemm(
            *map(self.addresses, sources), ctypes.c_void_p(out.ctypes.data),
            *map(ctypes.c_int64, (m, n, k)), ctypes.byref(time))
        self.assertEqual(status, 0, self.lib.dispatcher_contraction_last_error())
        a, b, d = (sum(x.astype("float32") for x in some) for some in sources)
        wanted = (a.astype("float16").astype("float64") @ b.astype("float16").astype("float64").T
                  + d)
        self.assertLessEqual(abs(out - wanted).max(), 2.0**-9 * (abs(wanted).max() + 8))
        self.assertGreater(time.value, 0)


if __name__ == "__main__":
    unittest.main()
