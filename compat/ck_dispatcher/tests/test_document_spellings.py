"""Spellings of the documents that the original's modules do not have."""
import contextlib
import io
import unittest

import numpy

from support import Case, SEED
import tessera
from ctypes_utils import (Dispatcher, GemmSetupResult, KernelConfig, Registry, Validator,
                          print_kernel_config_table, setup_gemm_dispatcher)


class Spellings(Case):
    def test_other_names_of_fields(self):
        config = KernelConfig(tile_m=256, warp_tile_m=16, warp_tile_n=64, warp_tile_k=8,
                              padding=False, double_buffer=True, epilogue="default")
        self.assertEqual(config, KernelConfig(tile_m=256, warp_m=16, warp_n=64, warp_k=8,
                                              pad_m=False, pad_n=False, pad_k=False,
                                              epilogue="default"))
        with self.assertRaisesRegex(TypeError, "warp_tile_m is another name of warp_m"):
            KernelConfig(warp_tile_m=16, warp_m=16)
        with self.assertRaises(TypeError):
            KernelConfig(warp_tile_q=16)

    def test_a_table_of_configurations(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            print_kernel_config_table([KernelConfig(), KernelConfig(tile_m=1024, pipeline="mem")])
        lines = printed.getvalue().splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertEqual(lines[1].split(), "| # | Tile | Wave | Warp | Pipe | Scheduler |".split())
        self.assertEqual(lines[4].split(),
                         "| 2 | 1024x128x32 | 2x2x1 | 32x32x16 | mem | intrawave |".split())
        self.assertEqual([lines[0], lines[2], lines[-1]], [lines[0]] * 3)

    def test_results_are_unpacked(self):
        m, n, k = (int(size) for size in self.random.integers(3, 40, 3))
        a, b = self.draw(m, k, dtype="float16"), self.draw(k, n, dtype="float16")
        one = KernelConfig(tile_m=128, pipeline="compv3", scheduler="intrawave")
        other = KernelConfig(tile_m=256, tile_n=256, pipeline="compv4")
        for given, count in ((one, 1), ([one], 1), ([one, other], 2)):
            lib, dispatcher, registry = setup_gemm_dispatcher(given, verbose=False)
            self.assertIsInstance(dispatcher, Dispatcher)
            self.assertIsInstance(registry, Registry)
            self.assertEqual(registry.kernel_count, count)
            self.assertTrue(lib.is_supported(m, n, k))
            result = dispatcher.run(a, b, m, n, k)
            self.assertTrue(result.success, result.error)
            check = Validator(rtol=1e-2, atol=1e-2)
            self.assertTrue(check.check(result.output, check.compute_reference(a, b))[0],
                            f"seed {SEED}")

    def test_failures_are_not_unpacked(self):
        wrong = KernelConfig(dtype_a="fp99")
        for given in (wrong, [KernelConfig(), wrong]):
            result = setup_gemm_dispatcher(given, verbose=False)
            self.assertFalse(result.success)
            with self.assertRaisesRegex(tessera.Error, "fp99"):
                lib, dispatcher, registry = result
        with self.assertRaisesRegex(tessera.Error, "no configuration is given"):
            list(setup_gemm_dispatcher([]))
        self.assertIsInstance(GemmSetupResult(False, error="why").error, str)


if __name__ == "__main__":
    unittest.main()
