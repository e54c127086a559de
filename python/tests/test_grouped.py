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

    def test_numbers_of_64_bits_are_read_as_they_are(self):
        a, b = self.draw(67, 19), self.draw(5, 19, 23)
        index = numpy.sort(self.random.integers(-1, 5, 67))
        rows = self.random.integers(0, 12, 5)
        stacked = self.draw(5, 11, 19)
        for given in ({"ends": self.ends(5, 67)}, {"index": index}, {"rows": rows}):
            for _ in range(2):  # the second call finds its plan
                both = [tessera.grouped_matmul(stacked if "rows" in given else a, b,
                                               **{k: x.astype(word) for k, x in given.items()})
                        for word in ("int32", "int64")]
                self.assertEqual(both[0].tobytes(), both[1].tobytes())
        beyond = numpy.array([1, 2, 3, 4, 2**33 + 5])
        self.refused("group_ends[4] must be at most 67, the room, m=67, got 8589934597", a, b,
                     ends=beyond)

    def lists(self, *sizes, dtype="float32"):
        return ([self.draw(m, k, dtype=dtype) for m, k, _ in sizes],
                [self.draw(k, n, dtype=dtype) for _, k, n in sizes])

    def test_lists_of_any_sizes(self):
        for dtype in ("float32", "float16"):
            count = int(self.random.integers(1, 12))
            sizes = [tuple(self.random.integers(0, 40, 3)) for _ in range(count)]
            a, b = self.lists(*sizes, (1, 1, 1), (90, 3, 50), dtype=dtype)
            out = [numpy.full((x.shape[0], y.shape[1]), 7, dtype) for x, y in zip(a, b)]
            for turned in (False, True):
                right = [numpy.asfortranarray(x) for x in b] if turned else b
                got = tessera.grouped_matmul(a, right, out=out)
                self.assertTrue(all(x is y for x, y in zip(got, out)))
                for x, y, z in zip(a, b, tessera.grouped_matmul(a, right)):
                    self.assertEqual(z.shape, (x.shape[0], y.shape[1]))
                    if z.size:
                        self.near(z, wide(x) @ wide(y), x, y)
                for x, y in zip(out, tessera.grouped_matmul(a, right)):
                    self.assertEqual(x.tobytes(), y.tobytes())
        self.assertEqual(tessera.grouped_matmul([], []), [])

    def test_lists_with_strides_bias_and_activation(self):
        a, b = self.lists((5, 8, 6), (9, 3, 4), (1, 2, 7))
        room = [self.draw(x.shape[0], 2 * x.shape[1] + 1) for x in a]
        a = [x[:, :y.shape[1]] for x, y in zip(room, a)]
        bias = [self.draw(x.shape[1]) for x in b]
        got = tessera.grouped_matmul(a, b, bias=bias, activation="relu", alpha=0.5)
        for x, y, z, out in zip(a, b, bias, got):
            self.near(out, numpy.maximum(0.5 * (wide(x) @ wide(y)) + z, 0), x, abs(y).max() + 1)

    def test_lists_that_do_not_fit(self):
        a, b = self.lists((5, 8, 6), (9, 3, 4))
        self.refused("b must be a list as a is, got ndarray", a, b[0])
        self.refused("b must have 2 arrays, as many as a, got 1", a, b[:1])
        self.refused("ends, index and rows must be left out, got ends", a, b, ends=[5, 14])
        self.refused("a[0] has 8 columns and b[0] has 3 rows; the two must be equal", a, b[::-1])
        self.refused("a[1] and b[1] must have 2 dimensions, got 1 and 2", [a[0], a[1][0]], b)
        self.refused("out[1] must have the shape (9, 4), got (9, 5)", a, b,
                     out=[numpy.zeros((5, 6), "float32"), numpy.zeros((9, 5), "float32")])
        self.refused("all of a must lie by rows, or all by columns, got a[1] by rows and a[0] by "
                     "columns", [numpy.asfortranarray(a[0]), a[1]], b)
        self.refused("all of b must have one type, got float32 and, at b[1], float16", a,
                     [b[0], b[1].astype("float16")])

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
