"""Products of groups of unequal sizes against NumPy in fp64."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROUNDING, Case, random_numbers, wide


class Grouped(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def ends(self, groups, room):
        """Ends in any order of sizes, of which some are 0 and the last may leave room."""
        return numpy.sort(self.random.integers(0, room + 1, groups)).astype("int32")

    def near(self, got, wanted, a, b):
        """a and b: what the sums are made of, of any sizes."""
        k = a.shape[-1]
        largest = (k + 4) * abs(wide(a)).max(initial=0) * abs(wide(b)).max(initial=0)
        self.assert_near(got, wanted, (k * 2.0**-24 + ROUNDING[got.dtype.name]) * largest + 1e-30)

    def by_rows(self, a, b, ends):
        wanted = numpy.zeros((a.shape[0], b.shape[-1]))
        begin = 0
        for group, end in enumerate(ends):
            wanted[begin:end] = wide(a[begin:end]) @ wide(b[group])
            begin = end
        return wanted

    def test_rows_by_ends(self):
        for dtype in ("float32", "float16", ml_dtypes.bfloat16):
            a, b = self.draw(67, 19, dtype=dtype), self.draw(5, 19, 23, dtype=dtype)
            for ends in (self.ends(5, 67), [67] * 5, [0, 0, 0, 0, 0], [0, 0, 67, 67, 67]):
                with self.subTest(dtype=str(dtype), ends=str(ends)):
                    self.near(tessera.grouped_matmul(a, b, ends=ends),
                              self.by_rows(a, b, ends), a, b)

    def test_weights_by_columns_bias_and_activation(self):
        a, weight, bias = self.draw(40, 16), self.draw(3, 24, 16), self.draw(3, 24)
        ends = self.ends(3, 40).astype("int64")
        for vectors in (bias, bias[0]):
            got = tessera.grouped_matmul(a, weight.transpose(0, 2, 1), ends=ends, bias=vectors,
                                         activation="relu", alpha=0.5)
            wanted = self.by_rows(a, weight.transpose(0, 2, 1), ends) * 0.5
            begin = 0
            for group, end in enumerate(ends):
                wanted[begin:end] += vectors if vectors.ndim == 1 else vectors[group]
                begin = end
            self.near(got, numpy.maximum(wanted, 0), a, abs(weight).max() + 1)

    def test_rows_by_index_leave_others_alone(self):
        a, b = self.draw(9, 8), self.draw(4, 8, 6)
        index = [-1, 0, 0, -1, 2, 2, 2, 3, -1]
        out = numpy.full((9, 6), 7, "float32")
        self.assertIs(tessera.grouped_matmul(a, b, index=index, out=out), out)
        for row, group in enumerate(index):
            wanted = numpy.full(6, 7.0) if group < 0 else wide(a[row]) @ wide(b[group])
            self.near(out[row], wanted, a, b)

    def test_masked(self):
        a, b, rows = self.draw(3, 11, 8), self.draw(3, 8, 6), numpy.array([11, 0, 4])
        got = tessera.grouped_matmul(a, b, rows=rows)
        for group, count in enumerate(rows):
            wanted = wide(a[group]) @ wide(b[group])
            wanted[count:] = 0
            self.near(got[group], wanted, a, b)

    def test_columns_and_k(self):
        ends = self.ends(4, 50)
        a, b = self.draw(4, 9, 8), self.draw(8, 50)
        got = tessera.grouped_matmul(a, b, ends=ends)
        self.near(got, self.by_rows(b.T, a.transpose(0, 2, 1), ends).T, a, b)
        a, b = self.draw(9, 50), self.draw(50, 7)
        got = tessera.grouped_matmul(a, b, ends=ends)
        self.assertEqual(got.shape, (4, 9, 7))
        begin = 0
        for group, end in enumerate(ends):
            self.near(got[group], wide(a[:, begin:end]) @ wide(b[begin:end]), a, b)
            begin = end

    def refused(self, sentence, *arrays, **given):
        with self.assertRaises(tessera.Error) as caught:
            tessera.grouped_matmul(*arrays, **given)
        self.assertIn(sentence, str(caught.exception))

    def test_numbers_that_do_not_fit(self):
        a, b = self.draw(8, 4), self.draw(3, 4, 5)
        out = numpy.full((8, 5), 7, "float32")
        for _ in range(2):  # the second call finds its plan
            for ends, sentence in (
                    ([1, 9, 9], "group_ends[1] must be at most 8, the room, m=8, got 9"),
                    ([4, 3, 8], "group_ends[1] must be at least 4, the end before it, so that ends "
                                "do not decrease, got 3"),
                    ([-1, 3, 8], "group_ends[0] must be at least 0, the least number, got -1")):
                self.refused(sentence, a, b, ends=ends, out=out)
        self.assertTrue((out == 7).all())
        tessera.grouped_matmul(a, b, ends=[1, 2, 8], out=out)
        self.assertFalse((out == 7).any())

    def test_what_does_not_go_together(self):
        a, b = self.draw(8, 4), self.draw(3, 4, 5)
        self.refused("needs one of ends, index and rows, got none", a, b)
        self.refused("got ends and rows", a, b, ends=[1, 2, 3], rows=[1, 2, 3])
        self.refused("ends must hold 3 numbers, the matrices of b, got 2", a, b, ends=[1, 2])
        self.refused("index must hold 8 numbers, the rows of a, got 2", a, b, index=[1, 2])
        self.refused("3 and 3 dimensions with rows, got 2 and 3", a, b, rows=[1, 2, 3])
        self.refused("a has 4 columns and b has 5 rows", a, b.transpose(0, 2, 1), ends=[1, 2, 3])
        self.refused("ends must hold whole numbers", a, b, ends=[0.5, 1, 2])

    def test_problem_by_name_reports_and_verifies(self):
        a, b = self.draw(8, 4), self.draw(3, 5, 4)
        line = "gemm m=8 n=5 k=4 groups=3 grouping=contiguous check_groups=1"
        bad = numpy.full(4, 5, "int32")
        ends = numpy.array([2, 2, 7], "int32")
        out = tessera.run(line, a=a, b=b, group_ends=ends, bad_group=bad,
                          out=numpy.zeros((8, 5), "float32"), verify=True)
        self.assertIsNotNone(out)
        self.assertEqual(bad.tolist(), [0, -1, -1, -1])


if __name__ == "__main__":
    unittest.main()
