"""The modules that the generators share, and what they know of targets."""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tessera
from support import COMPAT, Case

import arch_specs_generated as specs
import codegen_common
import preselected_kernels
import unified_gemm_codegen as unified
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


class Asked:
    """Stands for an ArchFilter and keeps what it is asked."""

    def __init__(self):
        self.calls = []

    def is_kernel_valid(self, **given):
        self.calls.append(given)
        return True


class Unified(Case):
    """The classes of unified_gemm_codegen."""

    TILE = TileConfig(128, 128, 32, 2, 2, 1, 32, 32, 16)

    def codegen(self, folder, datatype="fp16", **given):
        return unified.UnifiedGemmCodegen(folder, datatype, "rcr", **given)

    def test_types_are_taken_as_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            for call in (lambda: self.codegen(folder, "pk_fp4"),
                         lambda: unified._show_arch_info("gfx942", "pk_fp4")):
                with self.assertRaisesRegex(ValueError, "'pk_fp4'"):
                    call()
            for target, count in (("gfx942:xnack-", 1), ("gfx1201", 0)):  # no fp32 WMMA there
                codegen = self.codegen(folder, "fp32", gpu_target=target)
                codegen.arch_filter = Asked()
                tile = TileConfig(64, 64, 32, 2, 2, 1, 16, 16, 4)
                found = codegen._is_tile_arch_valid(tile, variant=unified.GemmVariant.STANDARD)
                self.assertIs(found, bool(count))
                self.assertEqual([[call[f"datatype_{each}"] for each in "abc"]
                                  for call in codegen.arch_filter.calls], [["fp32"] * 3] * count)
        for dtype in CommonTypeMappings.ARCH_VALIDATION_DTYPES:
            self.assertEqual(CommonTypeMappings.get_arch_dtype_triple(dtype),
                             (dtype, dtype, CommonTypeMappings.get_acc_dtype(dtype)))

    def test_what_a_target_lists_is_shown(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            unified._show_arch_info("gfx950:xnack-", "bf16")
        self.assertIn("=== Architecture Info for gfx950 ===", said.getvalue())
        block = said.getvalue().split("Warp tile configurations for bf16_bf16_fp32 ")[1]
        self.assertEqual([line.strip() for line in block.split("\n\n")[0].splitlines()[1:]],
                         list(map(str, specs.get_warp_tile_combos("gfx950", "bf16_bf16_fp32"))))

    def test_one_kernel(self):
        self.assertTrue(unified.HAS_ARCH_FILTER)
        trait = unified.TraitConfig("compv3", "cshuffle", "intrawave", persistent=False)
        generator = unified.CKTileKernelGenerator("fp16", "rcr")
        config = unified.KernelConfig(self.TILE, trait, unified.GemmVariant("grouped"))
        text = generator.generate(config)
        self.assertIn("gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x16_intrawave_gfx942", text)
        streamed = unified.KernelConfig(self.TILE, trait, unified.GemmVariant.STREAM_K)
        self.assertTrue(streamed.name("bf16", "rrr").startswith("ck_tile_gemm_bf16_rrr_compv3"))
        self.assertIn("_streamk_gfx942", generator.generate(streamed).splitlines()[0])
        with self.assertRaisesRegex(tessera.Error, "48"):
            generator.generate(unified.KernelConfig(
                TileConfig(48, 128, 32, 2, 2, 1, 32, 32, 16), trait))

    def test_a_folder_of_kernels(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "c.json").write_text(json.dumps({
                "tile_config": {"tile_m": [64, 100, 128]},
                "trait_config": {"pipeline": {"values": ["compv3", "compv4"]},
                                 "scheduler": ["intrawave", "interwave"]},
                "multi_d_config": {"elementwise_ops": ["MultiDAdd", "Relu"],
                                   "num_d_tensors": [1]}}))
            codegen = self.codegen(
                folder / "out", gpu_target="gfx942", config_file=folder / "c.json",
                variants=[unified.GemmVariant.STANDARD, unified.GemmVariant.MULTI_D],
                kernel_set_name="mine")
            self.assertEqual([tile.tile_m for tile in codegen._get_tile_configs()], [64, 128])
            self.assertEqual([each.pipeline for each in codegen._get_trait_configs()],
                             ["compv3", "compv4"])
            found = codegen.generate_all(parallel=False)
            self.assertEqual((len(found["kernels"]), found["failed"]), (12, []))
            for file in found["kernels"] + found["wrappers"]:
                self.assertTrue(pathlib.Path(file).is_file(), file)
                self.assertEqual(pathlib.Path(file).relative_to(folder).parts[:2], ("out", "mine"))
            relu = [file for file in found["kernels"] if file.endswith("_multid_Relu_d1.hpp")]
            self.assertEqual(len(relu), 4)

    def test_without_a_file_tiles_are_those_that_are_shipped(self):
        with tempfile.TemporaryDirectory() as folder:
            codegen = self.codegen(folder, gpu_target="gfx942", use_preselected="none")
            shipped = tessera.KernelSet("", "gfx942").preselected("fp16_rcr_essential").kernels
            found = {codegen_common.config_of(name).tile for name in shipped}
            self.assertEqual(set(codegen._get_tile_configs()), found)
            with self.assertRaisesRegex(ValueError, "there is no set 'none'"):
                codegen.generate_all()


if __name__ == "__main__":
    unittest.main()
