"""Plans over a range: the value from the operands' shapes, and launches at any value."""
import threading
import unittest

import numpy

import tessera
from support import SEED, Case, needs, random_numbers


@needs("tsr_range_plan")
class RangePlans(Case):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = tessera.Dispatcher(target="generic", threads=1)
        cls.plan = cls.dispatcher.plan_range("gemm m=1..40 n=6 k=5")

    def arrays(self, rows):
        random = random_numbers()
        a = random.standard_normal((rows, 5)).astype("float32")
        b = random.standard_normal((6, 5)).astype("float32")
        return a, b, numpy.zeros((rows, 6), "float32")

    def expect_product(self, a, b, out):
        numpy.testing.assert_allclose(out, a @ b.T, rtol=1e-4, atol=1e-5, err_msg=f"seed {SEED}")

    def test_the_rows_come_from_the_operands(self):
        for rows in (1, 7, 40, 7):
            a, b, out = self.arrays(rows)
            self.plan.launch(a=a, b=b, out=out)
            self.expect_product(a, b, out)

    def test_a_value_may_be_given(self):
        a, b, out = self.arrays(9)
        for _ in range(2):
            self.plan.launch(9, a=a, b=b, out=out)
            self.expect_product(a, b, out)
        with self.assertRaisesRegex(tessera.Error, "a must have the shape"):
            self.plan.launch(8, a=a, b=b, out=out)

    def test_other_values_are_refused(self):
        a, b, out = self.arrays(41)
        with self.assertRaisesRegex(tessera.Error, "m must be from 1 to 40, got 41"):
            self.plan.launch(a=a, b=b, out=out)
        with self.assertRaisesRegex(tessera.Error, "m must be from 1 to 40, got 0"):
            self.plan.at(0)
        with self.assertRaisesRegex(tessera.Error, "cannot be taken from the shapes"):
            self.plan.launch(b=b)
        with self.assertRaisesRegex(tessera.Error, "needs the operand"):
            self.plan.launch(3, b=b)

    def test_the_table_covers_the_range(self):
        parts = self.plan.parts
        self.assertEqual(parts[0]["first"], 1)
        self.assertEqual(parts[-1]["last"], 40)
        for before, after in zip(parts, parts[1:]):
            self.assertEqual(before["last"] + 1, after["first"])
        self.assertGreaterEqual(self.plan.workspace_bytes, self.plan.at(40).workspace_bytes)
        self.assertEqual(self.plan.problem, "gemm m=1..40 n=6 k=5")

    def test_the_plan_of_a_value_outlives_the_range(self):
        dispatcher = tessera.Dispatcher(target="generic", threads=1)
        plan = dispatcher.plan_range("gemm m=1..8 n=6 k=5")
        one = plan.at(3)
        plan.close()
        dispatcher.close()
        a, b, out = self.arrays(3)
        one.launch(a=a, b=b, out=out)
        self.expect_product(a, b, out)
        self.assertEqual(one.kernel, tessera.Dispatcher(target="generic", threads=1).select(
            "gemm m=3 n=6 k=5")["kernel"])
        with self.assertRaisesRegex(tessera.Error, "was closed"):
            plan.launch(a=a, b=b, out=out)

    def test_a_workspace_and_a_check_may_be_given(self):
        a, b, out = self.arrays(12)
        memory = numpy.zeros(self.plan.workspace_bytes + 64, "int8")
        start = -memory.ctypes.data % 64
        self.plan.launch(a=a, b=b, out=out, verify=True)
        self.expect_product(a, b, out)
        if self.plan.workspace_bytes:
            out[:] = 0
            self.plan.launch(a=a, b=b, out=out, workspace=memory[start:])
            self.expect_product(a, b, out)

    def test_addresses_need_no_arrays(self):
        a, b, out = self.arrays(4)
        self.plan.launch_at(4, [x.ctypes.data for x in (a, b, out)])
        self.expect_product(a, b, out)

    def test_other_fields_have_their_own_dimension(self):
        plan = self.dispatcher.plan_range("norm kind=softmax rows=2..30 columns=9")
        x = random_numbers().standard_normal((11, 9)).astype("float32")
        out = numpy.zeros_like(x)
        plan.launch(**{"in": x, "out": out})
        wanted = numpy.exp(x) / numpy.exp(x).sum(axis=1, keepdims=True)
        numpy.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-6)

    def test_threads_share_a_plan(self):
        wrong = []

        def work():
            for rows in range(1, 41):
                a, b, out = self.arrays(rows)
                self.plan.launch(a=a, b=b, out=out)
                if not numpy.allclose(out, a @ b.T, rtol=1e-4, atol=1e-5):
                    wrong.append(rows)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_lines_without_a_range_are_refused(self):
        for line, sentence in (("gemm m=4 n=6 k=5", "must give one field a range"),
                               ("gemm m=1.. n=6 k=5", "has no end"),
                               ("gemm m=8..2 n=6 k=5", "must not end before it begins")):
            with self.assertRaisesRegex(tessera.Error, sentence):
                self.dispatcher.plan_range(line)


if __name__ == "__main__":
    unittest.main()
