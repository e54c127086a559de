"""PyTorch and Tessera share one OpenMP library, whichever is loaded first.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
"""
import importlib.util
import json
import os
import unittest

from test_install import SAY, run

if importlib.util.find_spec("torch") is None and os.environ.get("TESSERA_TEST_TORCH") != "1":
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")


class OneLibrary(unittest.TestCase):
    def check(self, first, second):
        out, told = run(f"import ctypes\n{first}\n{second}\n"
                        "library = ctypes.CDLL(tessera._openmp.loaded()[0])" + SAY)
        self.assertTrue(out, told)
        is_shared, started, files = json.loads(out)
        self.assertTrue(is_shared, f"{started} threads were started, {files}")
        self.assertEqual(len(files), 1, files)

    def test_pytorch_first(self):
        self.check("import torch", "import tessera; tessera._abi.library()")

    def test_tessera_first(self):
        self.check("import tessera; tessera._abi.library()", "import torch")


if __name__ == "__main__":
    unittest.main()
