"""GEMM as the documents show it: ctypes_utils, gemm_utils, and what they write."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import numpy

import tessera
from support import HERE, SEED, Case

import ctypes_utils
import gemm_utils
from ctypes_utils import (CodegenRunner, Dispatcher, DispatcherLib, GemmRunner, KernelConfig,
                          Registry, Validator, auto_correct_kernel_config, cleanup_gemm,
                          reset_for_example, setup_gemm_dispatcher,
                          setup_multiple_gemm_dispatchers, validate_kernel_config)
from tessera_ck import gemm, launching, targets
from tessera_ck import libraries as _libraries


def fp32(**fields):
    return KernelConfig(dtype_a="fp32", dtype_b="fp32", dtype_c="fp32", **fields)


class Flow(Case):
    def test_set_up_run_and_check(self):
        reset_for_example()
        setup = setup_gemm_dispatcher(fp32(), registry_name="basic", verbose=False)
        self.assertTrue(setup.success, setup.error)
        a, b = self.draw(33, 21), self.draw(21, 18)
        result = setup.dispatcher.run(a, b, 33, 18, 21, verify=True)
        self.assertTrue(result.success, result.error)
        self.assert_here(result.target)
        self.assertGreater(result.time_ms, 0)
        self.assertIs(result.C, result.output)
        validator = Validator(rtol=1e-3, atol=1e-2)
        ok, largest, mean = validator.check(result.output, validator.compute_reference(a, b))
        self.assertTrue(ok, f"seed {SEED}: {largest}")
        self.assertLessEqual(mean, largest)
        self.assertLess(largest, 22 * 2.0**-24 * float((abs(a) @ abs(b)).max()) + 1e-30)
        cleanup_gemm()

    def test_defaults_are_documented(self):
        config = KernelConfig()
        self.assertEqual((config.dtype_a, config.dtype_acc, config.layout, config.tile_str,
                          config.wave_m, config.warp_k, config.block_size, config.pipeline,
                          config.scheduler, config.epilogue, config.variant),
                         ("fp16", "fp32", "rcr", "128x128x32", 2, 16, 256, "compv4", "intrawave",
                          "cshuffle", "standard"))

    def test_the_call_says_which_target(self):
        said = str(KernelConfig().target())
        self.assertRegex(said, r"^target \w+ \((this machine's|as TESSERA_TARGET says)")
        self.assertEqual(str(KernelConfig(gfx_arch="gfx942:sramecc+:xnack-").target()),
                         "target gfx942 (as asked)")

    def test_every_layout_and_type(self):
        for layout in ("rcr", "rrr", "crr", "ccr"):
            for dtype, near in (("fp32", "float32"), ("fp16", "float16")):
                words = [{"r": "row", "c": "col"}[letter] for letter in layout]
                config = KernelConfig(dtype_a=dtype, dtype_b=dtype, dtype_c=dtype,
                                      layout_a=words[0], layout_b=words[1], layout_c=words[2])
                runner = GemmRunner(DispatcherLib(config))
                a, b = self.draw(9, 16, dtype=near), self.draw(16, 24, dtype=near)
                result = runner.run(a, b, verify=True)
                self.assertTrue(result.success, f"{layout} {dtype}: {result.error}")
                self.assertEqual(result.output.dtype, near)

    def test_int8_gives_int32(self):
        config = KernelConfig(dtype_a="int8", dtype_b="int8", dtype_c="int32", dtype_acc="int32")
        a = self.random.integers(-128, 128, (7, 12)).astype("int8")
        b = self.random.integers(-128, 128, (12, 5)).astype("int8")
        result = GemmRunner(DispatcherLib(config)).run(a, b, verify=True)
        self.assertTrue(result.success, result.error)
        numpy.testing.assert_array_equal(result.output, a.astype("int32") @ b.astype("int32"))

    def test_an_empty_size_and_a_wrong_shape(self):
        lib = DispatcherLib(fp32())
        self.assertFalse(lib.is_supported(0, 4, 4))
        self.assertFalse(lib.is_supported(4, -1, 4))
        with self.assertRaisesRegex(tessera.Error, "A has 3 columns and B 4 rows"):
            GemmRunner(lib).run(self.draw(2, 3), self.draw(4, 5))

    def test_success_means_that_it_ran_and_verified_that_it_was_compared(self):
        lib, a, b = DispatcherLib(fp32()), self.draw(4, 4), self.draw(4, 4)
        ran, checked = GemmRunner(lib).run(a, b), GemmRunner(lib).run(a, b, verify=True)
        self.assertEqual((ran.status, ran.success, ran.verified), (0, True, False))
        self.assertEqual((checked.success, checked.verified), (True, True))
        numpy.testing.assert_allclose(ran.output, a.astype("float64") @ b, rtol=1e-5, atol=1e-5)

    def test_what_ran_is_what_is_chosen(self):
        lib = DispatcherLib(fp32())
        self.assertIsNotNone(lib.select_kernel(24, 56, 40))  # an estimate, before it is measured
        self.assertTrue(GemmRunner(lib).run(self.draw(24, 40), self.draw(40, 56)).success)
        self.assertEqual(lib.select_kernel(24, 56, 40), lib.last_kernel)

    def test_benchmark(self):
        found = GemmRunner(DispatcherLib(fp32())).benchmark(32, 32, 32, warmup=1, iterations=3)
        self.assertEqual((found["M"], found["N"], found["K"]), (32, 32, 32))
        self.assertLessEqual(found["min_time_ms"], found["avg_time_ms"])
        self.assertGreater(found["tflops"], 0)


class Planted(Case):
    """One wrong element is found, wherever it is and whoever looks."""

    def test_the_validator_finds_it(self):
        wanted = self.draw(40, 50)
        place = tuple(int(self.random.integers(0, size)) for size in wanted.shape)
        for wrong in (wanted[place] + 1, numpy.nan, numpy.inf):
            got = wanted.copy()
            got[place] = wrong
            self.assertFalse(Validator().check(got, wanted)[0], f"seed {SEED}: {wrong}")
        self.assertEqual(Validator().check(wanted, wanted), (True, 0.0, 0.0))

    def test_a_launch_that_is_wrong_is_no_success(self):
        lib = DispatcherLib(fp32())
        honest = launching._timed

        def spoiled(plan, arrays, verify, wait):
            if verify:
                raise tessera.Error("1 element is outside its tolerance", "verification_failed")
            return honest(plan, arrays, verify, wait)

        launching._timed = spoiled
        try:
            result = GemmRunner(lib).run(self.draw(4, 4), self.draw(4, 4), verify=True)
        finally:
            launching._timed = honest
        self.assertFalse(result.success)
        self.assertEqual(result.error, "1 element is outside its tolerance")

    def test_a_packed_product_that_is_wrong_is_no_success(self):
        lib = DispatcherLib(fp32(variant="preshuffle"))
        honest = launching.launch_packed

        def spoiled(plan, arrays):
            seconds = honest(plan, arrays)
            arrays["out"][2, 3] += 1
            return seconds

        a, b = self.draw(8, 16), self.draw(16, 24)
        self.assertTrue(GemmRunner(lib).run(a, b, verify=True).success)
        launching.launch_packed = spoiled
        try:
            result = GemmRunner(lib).run(a, b, verify=True)
        finally:
            launching.launch_packed = honest
        self.assertFalse(result.success)
        self.assertIn("1 of 192 elements are outside their tolerance", result.error)


class Variants(Case):
    def test_d_tensors_are_added_before_the_operation(self):
        cases = {("MultiDAdd", 2): lambda x, d: x + d[0] + d[1],
                 ("MultiDMultiply", 1): lambda x, d: x * d[0],
                 ("Relu", 1): lambda x, d: numpy.maximum(x + d[0], 0)}
        a, b = self.draw(12, 20), self.draw(20, 16)
        for (operation, count), wanted in cases.items():
            d = [self.draw(12, 16) for _ in range(count)]
            config = fp32(variant="multi_d", elementwise_op=operation, num_d_tensors=count)
            result = GemmRunner(DispatcherLib(config)).run(a, b, D=d, verify=True)
            self.assertTrue(result.success, f"{operation}: {result.error}")
            ok, largest, _ = Validator().check(result.output, wanted(a.astype("float64") @ b, d))
            self.assertTrue(ok, f"{operation}: {largest}, seed {SEED}")

    def test_without_d_and_operation_it_is_a_plain_product(self):
        a, b = self.draw(12, 20), self.draw(20, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = GemmRunner(DispatcherLib(fp32(variant="multi_d"))).run(a, b, verify=True)
        self.assertTrue(result.success, result.error)
        self.assertTrue(Validator().check(result.output, a.astype("float64") @ b)[0], f"{SEED}")
        named = fp32(variant="multi_d", elementwise_op="Relu")
        self.assertFalse(GemmRunner(DispatcherLib(named)).run(a, b).success)

    def test_operations_have_one_chain_each(self):
        self.assertEqual(gemm.epilogue_of("Relu", 1), "multi_d_add1+relu")
        self.assertEqual(gemm.epilogue_of("PassThrough", 0), "none")
        self.assertEqual(gemm.operation_of("multi_d_add1+relu"), ("Relu", 1))
        self.assertEqual(gemm.operation_of("multi_d_multiply3"), ("MultiDMultiply", 3))
        with self.assertRaisesRegex(tessera.Error, "no element-wise operation 'Sine'"):
            gemm.epilogue_of("Sine", 0)

    def test_preshuffled_weights_multiply(self):
        b = self.draw(32, 16)
        packed = ctypes_utils.preshuffle_weight_matrix(b)
        a = self.draw(4, 32)
        ok, _, _ = Validator().check(tessera.matmul(a, packed), a.astype("float64") @ b)
        self.assertTrue(ok)
        self.assertTrue(ctypes_utils.is_preshuffle_supported(dtype="fp32"))
        self.assertEqual(*(ctypes_utils.is_preshuffle_supported(**given) for given in (
            {"pipeline": "sm90a"}, {"arch": "sm90a"})))


class Named(Case):
    """A target that is not here generates and chooses; running says why it can't."""

    def test_it_chooses(self):
        lib = DispatcherLib(KernelConfig(gfx_arch="gfx942"))
        self.assertEqual(lib.kernel_names(),
                         ["gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_gfx942"])
        self.assertEqual(lib.select_kernel(1024, 1024, 1024), lib.kernel_names()[0])

    def test_it_does_not_run_here(self):
        if not targets.why_not_here(targets.resolve("gfx942")):
            self.skipTest("this machine has a gfx942")
        result = GemmRunner(DispatcherLib(KernelConfig(gfx_arch="gfx942"))).run(
            self.draw(8, 8, dtype="float16"), self.draw(8, 8, dtype="float16"))
        self.assertEqual((result.status, result.output, result.target), (-1, None, "gfx942"))
        self.assertRegex(result.error, "^target 'gfx942' ")

    def test_generating_is_what_the_command_does(self):
        kernel = "gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_gfx942"
        with tempfile.TemporaryDirectory() as folder:
            alone = tessera.command("generate", kernel=[kernel], output_dir=folder + "/alone",
                                    target="gfx942", check=False)
            result = CodegenRunner(output_dir=folder + "/ck", gpu_target="gfx942"
                                   ).generate_from_config(KernelConfig(gfx_arch="gfx942"))
        self.assertEqual(result.kernel_count, alone["written"])
        self.assertEqual(result.success, alone["written"] == 1)
        if result.success:
            self.assertEqual(result.instance_names, [
                "gemm_fp16_rcr_compv4_default_intrawave_True_True_True_False_128x128x32_2x2x1_"
                "32x32x16"])
        else:
            self.assertTrue(result.stderr)

    def test_an_unknown_one_is_named(self):
        found = validate_kernel_config(KernelConfig(gfx_arch="gfx1"))
        self.assertFalse(found.is_valid)
        self.assertRegex(found.errors[0], "unknown target 'gfx1'")

    def test_illegal_ones_are_corrected(self):
        config = KernelConfig(gfx_arch="gfx942", tile_m=256, tile_n=256, tile_k=64)
        found = validate_kernel_config(config)
        kernel = "gemm_fp16_rcr_compv4_256x256x64_2x2x1_32x32x16_intrawave_gfx942"
        rule = tessera.command("show", kernel=kernel, target="gfx942", check=False)["reason"]
        self.assertTrue(rule)
        self.assertEqual(found.errors, [f"{kernel}: {rule}"])
        corrected, changed, said = auto_correct_kernel_config(config)
        self.assertTrue(changed)
        self.assertTrue(validate_kernel_config(corrected).is_valid, said)
        legal = KernelConfig(gfx_arch="gfx942")
        self.assertEqual(auto_correct_kernel_config(legal), (legal, False, []))


GPU = """
import numpy
from support import *
import ctypes_utils
launching.measured_plan = lambda dispatcher, problem: dispatcher.plan(problem)
lib = ctypes_utils.DispatcherLib(ctypes_utils.KernelConfig())
assert str(lib.target) == "target sm90a (this machine's GPU)", lib.target
a, b = numpy.ones((128, 64), "float16"), numpy.ones((64, 128), "float16")
unchecked = ctypes_utils.GemmRunner(lib).run(a, b)
assert (unchecked.status, unchecked.success, unchecked.verified) == (0, True, False), unchecked
checked = ctypes_utils.GemmRunner(lib).run(a, b, verify=True)
assert not checked.success and "elements checked are outside" in checked.error, checked
"""


class OnAGpu(Case):
    """A driver plays a GPU that runs no kernel, so that no result is right."""

    def test_arrays_are_copied_and_wrong_results_found(self):
        driver = os.environ.get("TESSERA_FAKE_CUDA", "")
        if not driver:
            self.skipTest("TESSERA_FAKE_CUDA names no driver")
        found = subprocess.run([sys.executable, "-c", GPU], capture_output=True, text=True,
                               cwd=pathlib.Path(__file__).parent,
                               env={**os.environ, "TESSERA_CUDA_DRIVER": driver})
        self.assertEqual(found.returncode, 0, found.stderr)


class Registries(Case):
    def test_build_and_select(self):
        registry = Registry(name="two")
        self.assertTrue(registry.register_kernel(fp32()))
        self.assertFalse(registry.register_kernel(fp32()))
        registry.register_kernel(KernelConfig(dtype_a="bf16", dtype_b="bf16", dtype_c="bf16"))
        self.assertEqual(registry.kernel_count, 2)
        results = registry.build(max_workers=1)
        self.assertEqual([result.success for result in results], [True, True])
        self.assertIn(registry.select(64, 64, 64), registry.get_kernels())
        self.assertIsNotNone(Dispatcher(registry).select_kernel(64, 64, 64))
        registry.clear()
        self.assertEqual(len(registry), 0)
        self.assertIsNone(Dispatcher(registry).select_kernel(64, 64, 64))

    def test_a_dispatcher_chooses_once_for_a_problem(self):
        registry = Registry(name="two")
        registry.register_kernel(fp32())
        registry.register_kernel(fp32(variant="preshuffle"))
        asked, select = [], _libraries.Library._select
        dispatcher = Dispatcher(registry)
        with unittest.mock.patch.object(
                _libraries.Library, "_select",
                lambda lib, problem: asked.append(problem.line) or select(lib, problem)):
            first = dispatcher.select_kernel(32, 48, 64)
            self.assertEqual(dispatcher.select_kernel(32, 48, 64), first)
            self.assertEqual(len(asked), 2)  # once for each configuration
            registry.register_kernel(KernelConfig())
            self.assertIsNotNone(dispatcher.select_kernel(32, 48, 64))
            self.assertEqual(len(asked), 3)

    def test_several_set_up_give_paths(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = setup_multiple_gemm_dispatchers(
                [fp32(), KernelConfig(gfx_arch="gfx942", tile_m=100)], folder, verbose=False)
            self.assertIsInstance(paths[0], pathlib.Path)
            self.assertIsNone(paths[1])
            runner = gemm_utils.GpuGemmRunner(paths[0])
            self.assertIsNone(runner._lib)  # loads nothing before it runs
            a, b = self.draw(6, 8), self.draw(8, 10)
            result = runner.run(a, b, gemm_utils.GemmProblem(6, 10, 8), verify=True)
            self.assertTrue(result.success, result.error)
            self.assertTrue(DispatcherLib.load(paths[0]).initialize())
            paths[0].write_text("{}")
            with self.assertRaisesRegex(tessera.Error, "is no list of kernels"):
                DispatcherLib.load(paths[0])

    def test_the_exported_json_has_the_documented_shape(self):
        lib = DispatcherLib(KernelConfig(gfx_arch="gfx942"))
        whole = json.loads(lib.export_registry_json())
        self.assertEqual(whole["metadata"]["total_kernels"], 1)
        self.assertEqual(whole["metadata"]["export_version"], "1.0")
        self.assertEqual(whole["statistics"]["by_pipeline"], {"compv4": 1})
        row = whole["kernels"][0]
        self.assertEqual(row["algorithm"]["tile_shape"], {"m": 128, "n": 128, "k": 32})
        self.assertEqual(row["identifier"], lib.get_kernel_name())


class Generated(Case):
    def test_names_and_suffixes(self):
        with tempfile.TemporaryDirectory() as folder:
            runner = CodegenRunner(output_dir=folder)
            self.assertTrue(runner.ensure_kernels_exist())
            plain = runner.categorize_kernels()["standard"]
            for config, suffix in ((KernelConfig(variant="preshuffle"), "_preshuffle"),
                                   (KernelConfig(variant="multi_d", elementwise_op="Relu"),
                                    "_multid_Relu_d1")):
                result = runner.generate_from_config(config)
                self.assertTrue(result.success, result.stderr)
                for name in result.instance_names:
                    self.assertRegex(name, "^gemm_fp16_rcrr?_.*" + suffix + "$")
            files = runner.list_kernels()
            table = json.loads((pathlib.Path(folder) / "kernel_names.json").read_text())
            self.assertEqual(sorted(table), [path.stem for path in files])
            backend = targets.resolve().backend
            ending = {"cpu": ".cc", "hip": ".hip"}.get(backend, ".cu")
            for path in files:
                self.assertIn(table[path.stem], path.read_text())
                self.assertTrue((path.parent / (table[path.stem] + ending)).is_file())
            count = runner.categorize_kernels()
            self.assertEqual(count["total"], len(files))
            self.assertEqual(count["standard"], plain)
            self.assertEqual(count["total"],
                             count["standard"] + count["multi_d"] + count["preshuffle"])

    def test_file_names_are_one_to_one(self):
        for target in ("gfx942", "sm90a", HERE):
            names = gemm.legal_kernels(targets.resolve(target), "fp16", "rcr", gemm.VARIANTS)
            sample = [names[int(i)] for i in self.random.integers(0, len(names), 150)]
            sample = sorted(set(sample))
            files = {gemm.file_name(gemm.spec_of(name)) for name in sample}
            self.assertEqual(len(files), len(sample), f"{target}, seed {SEED}")

    def test_preselected(self):
        with tempfile.TemporaryDirectory() as folder:
            runner = CodegenRunner(output_dir=folder)
            self.assertTrue(runner.generate_preselected().success)
            missing = runner.generate_preselected("no_such_set")
            self.assertFalse(missing.success)
            self.assertIn("no_such_set", missing.stderr)
            with self.assertRaisesRegex(tessera.Error, "variant must be one of"):
                runner.generate("fancy")


class Sweeps(Case):
    def test_only_legal_ones_are_expanded(self):
        sweep = {"tile_config": {"tile_m": [64, 100, 256], "tile_n": [128]},
                 "trait_config": {"pipeline": ["compv3"], "scheduler": ["intrawave", "interwave"]}}
        found = gemm_utils.expand_sweep(sweep, gfx_arch="gfx942")
        name = "gemm_fp16_rcr_compv3_{}x128x32_2x2x1_32x32x16_{}_gfx942"
        legal = [(m, scheduler) for m in (64, 100, 256) for scheduler in ("intrawave", "interwave")
                 if tessera.command("show", kernel=name.format(m, scheduler), target="gfx942",
                                    check=False)["legal"]]
        self.assertIn((64, "intrawave"), legal)
        self.assertNotIn((100, "intrawave"), legal)
        self.assertEqual([(c.tile_m, c.scheduler) for c in found], legal)
        again = gemm_utils.expand_sweep(found[0].to_codegen_json(), gfx_arch="gfx942")
        self.assertEqual(again, [found[0]])

    def test_words(self):
        self.assertEqual(gemm_utils.normalize_gfx_arch("gfx90a:xnack-"), "gfx90a")
        self.assertEqual(gemm_utils.output_dtype_for("fp8"), "fp16")
        self.assertEqual(gemm_utils.numpy_dtype_for("fp16"), numpy.float16)


if __name__ == "__main__":
    unittest.main()
