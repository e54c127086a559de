"""The modules that the generators share, and what they know of targets."""
import subprocess
import sys
import unittest

import tessera
from support import COMPAT, Case

import arch_specs_generated as specs
import codegen_common
import preselected_kernels
from arch_filter import ArchFilter, filter_kernels
from codegen_common import CommonTypeMappings, TileConfig, TraitConfigBase, parallel_generate


class Common(Case):
    def test_tiles_divide(self):
        self.assertTrue(TileConfig(128, 128, 32, 2, 2, 1, 32, 32, 16).is_valid())
        self.assertFalse(TileConfig(96, 128, 32, 2, 2, 1, 32, 32, 16).is_valid())
        self.assertFalse(TileConfig(128, 128, 32, 0, 2, 1, 32, 32, 16).is_valid())

    def test_interwave_is_for_mem(self):
        self.assertTrue(TraitConfigBase("mem", "cshuffle", "interwave").is_valid())
        self.assertTrue(TraitConfigBase("basic_v1", "cshuffle", "interwave").is_valid())
        self.assertFalse(TraitConfigBase("compv4", "cshuffle", "interwave").is_valid())
        self.assertEqual(len(codegen_common.valid_trait_configs()), 5)

    def test_types(self):
        self.assertEqual([CommonTypeMappings.get_output_dtype(word)
                          for word in ("fp16", "fp8", "bf8", "int8")],
                         ["fp16", "fp16", "fp16", "int32"])
        self.assertEqual(CommonTypeMappings.get_acc_dtype("int8"), "int32")
        self.assertEqual(CommonTypeMappings.PIPELINE_TO_DISPATCHER["preshufflev2"],
                         "Pipeline::PreShuffleV2")
        self.assertIn('#include "k.hpp"', codegen_common.generate_cpp_compilation_unit("k"))

    def test_generating_in_parallel(self):
        self.assertEqual(sorted(parallel_generate(lambda x: x * x, range(20))),
                         [x * x for x in range(20)])
        self.assertEqual(parallel_generate(lambda x: -x, [1, 2], parallel=False), [-1, -2])
        with self.assertRaises(ZeroDivisionError):
            parallel_generate(lambda x: 1 // x, [1, 0, 2])

    def test_the_values_of_targets(self):
        self.assertIn([2, 2, 1], codegen_common.valid_wave_configs("gfx942"))
        self.assertIn([16, 16, 32], codegen_common.valid_warp_configs("gfx942", "fp16"))
        self.assertEqual(codegen_common.valid_wave_configs("gfx000"), [[2, 2, 1]])
        self.assertEqual(codegen_common.valid_warp_configs("gfx000"), [[32, 32, 16]])
        self.assertTrue(codegen_common.needs_wave_expansion({"wave_m": codegen_common.ANY_INT}))
        self.assertFalse(codegen_common.needs_warp_expansion({"warp_m": 32}))
        self.assertTrue(codegen_common.needs_pipeline_expansion({"pipeline": "*"}))


class Specs(Case):
    def test_rows_are_told_under_their_original_names(self):
        self.assertIn("gfx942", specs.get_supported_archs())
        self.assertEqual(specs.get_arch_family("gfx942"), "cdna3")
        self.assertIn([2, 2, 1], specs.get_warp_configs("gfx942"))
        self.assertIn([32, 32, 8], specs.get_warp_tile_combos("gfx942", "fp16_fp16_fp32"))
        self.assertEqual(specs.LDS_CAPACITY_LIMITS["gfx950"], 160 * 1024)
        self.assertEqual(specs.get_lds_limit("compv4", "gfx942"), 32 * 1024)
        self.assertEqual(specs.get_element_size("bf16"), 2)

    def test_traits_and_types(self):
        self.assertTrue(specs.is_trait_combo_unsupported("compv3", "cshuffle", "interwave"))
        self.assertFalse(specs.is_trait_combo_unsupported("mem", "cshuffle", "interwave"))
        self.assertTrue(specs.is_dtype_combo_valid("fp8", "bf8"))
        self.assertFalse(specs.is_dtype_combo_valid("fp16", "bf16"))
        self.assertEqual(specs.get_dtype_info("int8", "int8"), {"acc": "int32", "output": "int32"})
        self.assertIn(("fp16", "fp16"), specs.get_valid_dtype_combos("gfx942"))


class Filter(Case):
    def test_legal_and_illegal(self):
        rules = ArchFilter("gfx942")
        self.assertTrue(rules.is_kernel_valid())
        wrong = rules.validate_kernel(dict(
            tile_m=256, tile_n=256, tile_k=64, warp_m=2, warp_n=2, warp_k=1, warp_tile_m=32,
            warp_tile_n=32, warp_tile_k=16, pipeline="compv4", scheduler="intrawave"))
        self.assertFalse(wrong.valid)
        self.assertEqual(wrong.errors, ["LDS capacity exceeded: " + tessera.command(
            "show", target="gfx942", check=False,
            kernel="gemm_fp16_rcr_compv4_256x256x64_2x2x1_32x32x16_intrawave_gfx942")["reason"]])
        self.assertIn("pipeline must be one of",
                      rules.validate_kernel({"pipeline": "compv99"}).errors[0])

    def test_shipped_kernels_are_legal(self):
        for target in ("gfx90a", "gfx942", "gfx950", None):
            kernels = preselected_kernels.get_preselected_set("fp16_rcr_essential", target)
            self.assertTrue(kernels)
            self.assertEqual(filter_kernels(kernels, target), kernels)


class Preselected(Case):
    def test_sets_under_their_original_names(self):
        sizes = {name: len(preselected_kernels.get_preselected_set(name, "gfx942"))
                 for name in ("fp16_rcr_compute", "fp16_rcr_memory", "fp16_rcr_latency",
                              "fp16_rcr_multi_d", "fp16_rcr_preshuffle", "fp16_rcr_all",
                              "bf16_rcr_essential", "int8_rcr_essential", "fp8_rcr_essential",
                              "mixed_precision")}
        self.assertTrue(all(sizes.values()), sizes)
        self.assertGreater(sizes["fp16_rcr_all"], sizes["fp16_rcr_multi_d"])
        for kernel in preselected_kernels.get_preselected_set("fp16_rcr_multi_d", "gfx942"):
            self.assertEqual(kernel.variant, "multi_d")
            self.assertGreater(kernel.num_d_tensors, 0)
        self.assertTrue(preselected_kernels.default_kernel("gfx942").name.endswith("_gfx942"))

    def test_an_unknown_set_lists_the_others(self):
        with self.assertRaisesRegex(ValueError, "no set 'none'; there are .*fp16_rcr_essential"):
            preselected_kernels.get_preselected_set("none")

    def test_the_script(self):
        script = [sys.executable, str(COMPAT / "codegen/preselected_kernels.py")]
        found = subprocess.run([*script, "--set", "fp16_rcr_essential", "--gpu-target", "gfx942",
                                "--count-only"], capture_output=True, text=True)
        count = len(tessera.KernelSet("", "gfx942").preselected("fp16_rcr_essential"))
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(found.stdout, "tessera list --preselected fp16_rcr_essential --target "
                         f"gfx942\ntarget gfx942 (as asked)\nfp16_rcr_essential: {count} kernels\n")
        wrong = subprocess.run([*script, "--set", "none"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("there is no set 'none'", wrong.stderr)
        for target in (str(COMPAT), "gfx1", "/nowhere/row.json"):
            wrong = subprocess.run([*script, "--gpu-target", target], capture_output=True,
                                   text=True)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn(target, wrong.stderr)
            self.assertNotIn("Traceback", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
