"""matmul against NumPy in fp64."""
import itertools
import unittest

import ml_dtypes
import numpy

import tessera
from tessera._dispatcher import default_dispatcher
from support import Case, gelu, product_bound, random_numbers, wide


def stored(array, by_rows):
    """The same matrix, its rows or its columns neighbours, in memory with gaps."""
    shape = array.shape if by_rows else array.shape[::-1]
    memory = numpy.zeros((shape[0], shape[1] + 3), array.dtype)
    memory[:, :shape[1]] = array if by_rows else array.T
    view = memory[:, :shape[1]]
    return view if by_rows else view.T


class Matmul(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def check(self, a, b, **options):
        got = tessera.matmul(a, b, **options)
        wanted = numpy.matmul(wide(a), wide(b))
        self.assertEqual(got.shape, wanted.shape)
        if got.size:
            a = a if a.ndim > 1 else a.reshape(1, -1)
            bound = product_bound(a, b if b.ndim > 1 else b.reshape(-1, 1), got)
            self.assert_near(got, wanted, bound.reshape(wanted.shape))
        return got

    def test_every_layout_and_gap(self):
        a, b = self.draw(37, 29), self.draw(29, 43)
        for a_rows, b_rows in itertools.product((True, False), repeat=2):
            self.check(stored(a, a_rows), stored(b, b_rows))

    def test_layouts_become_words(self):
        a, b, out = self.draw(5, 6), self.draw(6, 7), self.draw(5, 7)
        d = tessera.Dispatcher()
        tessera.matmul(a, b, out=out, dispatcher=d)
        tessera.matmul(a, stored(b, False), out=out, dispatcher=d)
        lines = [plan.problem.line for plan, _ in d._plans.values()]
        self.assertEqual(lines[0], "gemm m=5 n=7 k=6 layout=rrr")
        self.assertEqual(lines[1], "gemm m=5 n=7 k=6 ld_b=9")

    def test_random_shapes(self):
        for _ in range(20):
            m, n, k = (int(x) for x in self.random.integers(1, 70, 3))
            self.check(self.draw(m, k), self.draw(k, n))

    def test_batches(self):
        self.check(self.draw(3, 4, 5), self.draw(3, 5, 6))
        self.check(self.draw(2, 3, 4, 5), self.draw(2, 3, 5, 6))
        self.check(self.draw(4, 5), self.draw(3, 5, 6))
        self.check(self.draw(2, 1, 4, 5), self.draw(5, 6))
        self.check(self.draw(3, 5, 4).transpose(0, 2, 1), self.draw(3, 5, 6))

    def test_batches_that_share_b_become_rows(self):
        d = tessera.Dispatcher()
        a, b = self.draw(2, 3, 4, 5), self.draw(5, 6)
        got = tessera.matmul(a, b, dispatcher=d)
        plan, _ = next(iter(d._plans.values()))
        self.assertEqual(plan.problem.line, "gemm m=24 n=6 k=5 layout=rrr")
        self.assert_near(got, wide(a) @ wide(b), product_bound(a, b, got))

    def test_batches_at_several_distances(self):
        a = self.draw(3, 2, 4, 5).transpose(1, 0, 2, 3)
        self.check(a, self.draw(2, 3, 5, 6))

    def test_vectors(self):
        self.check(self.draw(5), self.draw(5, 6))
        self.check(self.draw(4, 5), self.draw(5))
        self.check(self.draw(5), self.draw(5))
        self.check(self.draw(10)[::2], self.draw(5, 6))
        self.check(self.draw(3, 4, 5), self.draw(5))

    def test_empty(self):
        for m, n, k in itertools.product((0, 3), repeat=3):
            self.check(self.draw(m, k), self.draw(k, n))
        self.assertEqual(tessera.matmul(self.draw(0, 4, 5), self.draw(5, 6)).shape, (0, 4, 6))

    def test_epilogue(self):
        a, b, bias, residual = (self.draw(20, 30), self.draw(30, 40), self.draw(40),
                                self.draw(20, 40))
        got = tessera.matmul(a, b, bias=bias, activation="relu", residual=residual, alpha=0.5)
        sums = 0.5 * (wide(a) @ wide(b)) + wide(bias)
        bound = product_bound(a, b, got, abs(bias) + abs(residual))
        self.assert_near(got, numpy.maximum(sums, 0) + wide(residual), bound)
        got = tessera.matmul(a, b, bias=bias, activation="gelu")
        sums = wide(a) @ wide(b) + wide(bias)
        # gelu's slope is at most 1.13; its own error is a few roundings of its argument.
        bound = 1.13 * product_bound(a, b, got, abs(bias)) + 2.0**-19 * (1 + abs(sums))
        self.assert_near(got, gelu(sums), bound)

    def test_epilogue_in_batches(self):
        a, b, bias, residual = (self.draw(3, 4, 5), self.draw(3, 5, 6), self.draw(6),
                                self.draw(3, 4, 6))
        got = tessera.matmul(a, b, bias=bias, residual=residual)
        bound = product_bound(a, b, got, abs(bias) + abs(residual))
        self.assert_near(got, wide(a) @ wide(b) + wide(bias) + wide(residual), bound)

    def test_residual_is_out(self):
        a, b, out = self.draw(8, 9), self.draw(9, 10), self.draw(8, 10)
        before = out.copy()
        self.assertIs(tessera.matmul(a, b, residual=out, out=out), out)
        self.assert_near(out, wide(a) @ wide(b) + wide(before),
                         product_bound(a, b, out, abs(before)))

    def test_beta_reads_out(self):
        a, b, out = self.draw(3, 8, 9), self.draw(3, 9, 10), self.draw(3, 8, 10)
        before = out.copy()
        tessera.matmul(a, b, out=out, alpha=2, beta=0.5)
        self.assert_near(out, 2 * (wide(a) @ wide(b)) + 0.5 * wide(before),
                         product_bound(a, b, out, abs(before)) * 2)
        self.assert_refused("beta", tessera.matmul, a, b, beta=1.0)

    def test_out_by_columns(self):
        a, b, residual = self.draw(11, 12), self.draw(12, 13), self.draw(13, 11).T
        out = numpy.empty((13, 11), "float32").T
        tessera.matmul(a, b, out=out, residual=residual)
        self.assert_near(out, wide(a) @ wide(b) + wide(residual),
                         product_bound(a, b, out, abs(residual)))

    def test_out_with_gaps_keeps_them(self):
        a, b = self.draw(6, 7), self.draw(7, 8)
        memory = numpy.full((6, 12), 7, "float32")
        tessera.matmul(a, b, out=memory[:, 2:10])
        self.assertTrue((memory[:, :2] == 7).all() and (memory[:, 10:] == 7).all())
        self.assert_near(memory[:, 2:10], wide(a) @ wide(b), product_bound(a, b, memory))

    def test_types(self):
        for name in ("float16", "bfloat16"):
            dtype = numpy.dtype(getattr(ml_dtypes, name, name))
            a, b = self.draw(17, 19, dtype=dtype), self.draw(19, 23, dtype=dtype)
            self.assertEqual(self.check(a, b).dtype, dtype)
            self.check(a, b, out=numpy.empty((17, 23), "float32"))
        a = self.draw(17, 19, dtype=ml_dtypes.float8_e4m3fn)
        b = self.draw(19, 23, dtype=ml_dtypes.float8_e5m2)
        self.assertEqual(self.check(a, b).dtype, numpy.float16)

    def test_int8_is_exact(self):
        a = self.random.integers(-128, 128, (9, 33)).astype("int8")
        b = self.random.integers(-128, 128, (33, 7)).astype("int8")
        got = tessera.matmul(a, b)
        self.assertEqual(got.dtype, numpy.int32)
        numpy.testing.assert_array_equal(got, a.astype("int32") @ b.astype("int32"))

    def test_nan_stays_in_its_row(self):
        a, b = self.draw(4, 5), self.draw(5, 6)
        a[2, 3] = numpy.nan
        is_nan = numpy.isnan(tessera.matmul(a, b))
        self.assertTrue(is_nan[2].all() and not is_nan[[0, 1, 3]].any())
        self.assert_refused("alpha must be finite, got nan", tessera.matmul, a, b, alpha=numpy.nan)

    def test_warm_call_has_the_bits_of_the_first(self):
        d = tessera.Dispatcher(threads=1)
        a, b, bias = self.draw(21, 22), self.draw(22, 23), self.draw(23)
        out, first = numpy.empty((21, 23), "float32"), numpy.empty((21, 23), "float32")
        tessera.matmul(a, b, bias=bias, out=first, dispatcher=d)
        self.assertEqual(len(d._table), 1)
        tessera.matmul(a, b, bias=bias, out=out, dispatcher=d)
        self.assertEqual(out.tobytes(), first.tobytes())
        tessera.matmul(2 * a, b, bias=bias, out=out, dispatcher=d)
        self.assertEqual(len(d._table), 1)
        self.assertNotEqual(out.tobytes(), first.tobytes())

    def test_new_results_are_new(self):
        a, b = self.draw(5, 6), self.draw(6, 7)
        results = [tessera.matmul(a, b) for _ in range(3)]
        self.assertEqual(len({result.ctypes.data for result in results}), 3)
        self.assertEqual(len({result.tobytes() for result in results}), 1)
        half = self.draw(6, 7, dtype="float16")
        self.assertEqual(tessera.matmul(half.T, half).dtype, numpy.float16)
        self.assertEqual(tessera.matmul(b.T, b).shape, (7, 7))

    def test_packed_weight(self):
        b, bias = self.draw(31, 33), self.draw(33)
        for weight in (b, stored(b, False)):
            packed = tessera.prepack(weight, rows=16, bias=True, activation="relu")
            for m in (16, 5, 5):
                a, out = self.draw(m, 31), numpy.empty((m, 33), "float32")
                for _ in range(2):
                    tessera.matmul(a, packed, bias=bias, activation="relu", out=out)
                wanted = numpy.maximum(wide(a) @ wide(b) + wide(bias), 0)
                self.assert_near(out, wanted, product_bound(a, b, out, abs(bias)))
        self.assert_refused("packed for epilogue=bias.relu, got epilogue=none", tessera.matmul,
                            self.draw(4, 31), packed)

    def draw_view(self, lead, rows, columns):
        """Matrices in memory as anybody may have them: transposed, with gaps, with their leading
        dimensions in any order."""
        gaps = [int(x) for x in self.random.integers(0, 3, len(lead) + 2)]
        shape = [*lead, rows, columns]
        order = list(self.random.permutation(len(lead))) if self.random.integers(2) else None
        swapped = bool(self.random.integers(2))
        if swapped:
            shape[-1], shape[-2] = shape[-2], shape[-1]
        if order:
            shape[:-2] = [lead[i] for i in order]
        memory = self.draw(*[n + gap for n, gap in zip(shape, gaps)])
        view = memory[tuple(slice(gap, None) for gap in gaps)]
        if order:
            view = view.transpose(*[order.index(i) for i in range(len(lead))], -2, -1)
        return view.swapaxes(-1, -2) if swapped else view

    def test_packed_weight_and_out_by_columns(self):
        a, b = self.draw(8, 8), self.draw(8, 8)
        for weight in (b, b.T):
            packed = tessera.prepack(weight)
            self.assert_refused("out must lie by rows", tessera.matmul, a, packed,
                                out=numpy.empty((8, 8), "float32").T)

    def test_packed_weight_and_batches(self):
        a, b = self.draw(3, 4, 8), self.draw(8, 9)
        packed = tessera.prepack(b)
        got = tessera.matmul(a, packed)
        self.assert_near(got, wide(a) @ wide(b), product_bound(a, b, got))
        gaps = numpy.zeros((3, 6, 9), "float32")[:, :4]
        tessera.matmul(a, packed, out=gaps)
        self.assertEqual(gaps.tobytes(), got.tobytes())
        self.assert_refused("a has 8 columns and b has 7 rows", tessera.matmul, a,
                            tessera.prepack(self.draw(7, 9)))

    def test_any_views_are_right_or_refused(self):
        refused = 0
        for _ in range(300):
            lead = tuple(int(x) for x in self.random.integers(1, 4, self.random.integers(0, 3)))
            m, n, k = (int(x) for x in self.random.integers(1, 9, 3))
            a = self.draw_view(lead, m, k)
            b = self.draw_view(lead if self.random.integers(2) else (), k, n)
            out = self.draw_view(lead, m, n)
            residual = self.draw_view(lead, m, n) if self.random.integers(3) == 0 else None
            before, beta = out.copy(), float(self.random.integers(2))
            wanted = numpy.matmul(wide(a), wide(b)) + beta * wide(before)
            extra = abs(beta * before)
            if residual is not None:
                wanted, extra = wanted + wide(residual), extra + abs(residual)
            try:
                tessera.matmul(a, b, out=out, beta=beta, residual=residual)
            except tessera.Error as error:
                self.assertRegex(str(error),
                                 "leading dimensions|residual must lie|batch_stride_out")
                numpy.testing.assert_array_equal(out, before)
                refused += 1
                continue
            self.assert_near(out, wanted, product_bound(a, b, out, extra))
        self.assertLess(refused, 200)

    def test_batches_that_broadcast_on_both_sides(self):
        for lead_a, lead_b in (((2, 1), (3,)), ((2, 1), (1, 3)), ((4, 1, 3), (2, 1)),
                               ((1, 2, 1, 3), (5, 1, 2, 1))):
            a, b = self.draw(*lead_a, 4, 6), self.draw(*lead_b, 6, 5)
            for _ in range(2):
                self.check(a, b)
            wanted = numpy.matmul(wide(a), wide(b))
            kept, bias = self.draw(*wanted.shape), self.draw(5)
            out = kept.copy()
            tessera.matmul(a, b, out=out, residual=out, beta=1.0, bias=bias)
            extra = 2 * abs(kept) + abs(bias)
            self.assert_near(out, wanted + 2 * wide(kept) + wide(bias),
                             product_bound(a, b, out, extra))
            row = self.draw(*lead_a, 6)[..., None, :]
            self.check(row, b)

    def test_several_launches_read_what_none_of_them_writes(self):
        memory = self.draw(2, 3, 4, 4)
        a, b = memory[:, :1], self.draw(3, 4, 4)
        self.assert_refused("out and a overlap in memory", tessera.matmul, a, b, out=memory)
        self.assert_refused("out and residual overlap", tessera.matmul, self.draw(2, 1, 4, 4), b,
                            out=memory, residual=memory[::-1, ::-1][::1].transpose(0, 1, 3, 2)
                            [::-1, ::-1])
        over = numpy.lib.stride_tricks.as_strided(memory, memory.shape, (64, 64, 16, 4))
        self.assert_refused("results would overlap", tessera.matmul, self.draw(2, 1, 4, 4), b,
                            out=over)
        self.assert_refused("stride -16 over 2", tessera.matmul, self.draw(2, 1, 4, 4)[::-1], b)

    def test_many_shapes_do_not_fill_the_memory(self):
        self.assertLess(len(default_dispatcher()._table), 4097)


if __name__ == "__main__":
    unittest.main()
