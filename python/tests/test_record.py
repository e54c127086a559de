"""Records of what a process asks."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

import tessera
from support import Case

SCRIPT = """
import sys, numpy, tessera
a = numpy.ones((5, 8), "float32")
for _ in range(int(sys.argv[1])):
    tessera.matmul(a, numpy.ones((8, 3), "float32"))
"""


def asked(file):
    """{problem: calls} of a record."""
    shown = tessera.command("record", action="show", file=[file])
    return {row["problem"]: row["calls"] for row in shown["problems"]}


class Records(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(folder.name, "model.record")

    def multiply(self, times, m=4):
        for _ in range(times):
            tessera.matmul(numpy.ones((m, 8), "float32"), numpy.ones((8, 3), "float32"))

    def test_calls_in_the_block_are_counted(self):
        self.multiply(3)  # the plan is made before, and kept
        with tessera.record(self.file):
            self.multiply(4)
            self.multiply(2, m=6)
        self.multiply(5)
        counted = asked(self.file)
        self.assertEqual(sorted(counted.values()), [2, 4])

    def test_the_inner_block_gets_the_calls(self):
        other = os.path.join(self.folder, "other.record")
        with tessera.record(self.file):
            self.multiply(1)
            with tessera.record(other):
                self.multiply(2)
            self.multiply(3)
        self.assertEqual(list(asked(self.file).values()), [4])
        self.assertEqual(list(asked(other).values()), [2])

    def test_a_dispatchers_own_file(self):
        mine = tessera.Dispatcher("generic", record=self.file)
        plan = mine.plan("gemm m=4 n=3 k=8 layout=rrr")
        arrays = {"a": numpy.ones((4, 8), "float32"), "b": numpy.ones((8, 3), "float32"),
                  "out": numpy.zeros((4, 3), "float32")}
        for _ in range(7):
            plan.launch(**arrays)
        plan.close()
        mine.close()
        self.assertEqual(list(asked(self.file).values()), [7])

    def test_processes_write_one_file_and_count_to_their_end(self):
        environment = dict(os.environ, TESSERA_RECORD=self.file)
        times = [3, 40, 500]
        running = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(n)], env=environment)
                   for n in times]
        self.assertEqual([process.wait() for process in running], [0, 0, 0])
        self.assertEqual(list(asked(self.file).values()), [sum(times)])
        shown = tessera.command("record", action="show", file=[self.file])
        self.assertEqual(len(shown["processes"]), 3)

    def test_a_file_that_cannot_be_written(self):
        with open(self.file, "w", encoding="utf-8") as stream:
            stream.write("")
        with self.assertRaises(tessera.Error):
            with tessera.record(os.path.join(self.file, "below")):
                self.fail("the block must not begin")


if __name__ == "__main__":
    unittest.main()
