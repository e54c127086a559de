"""What programs for the original's GEMM ask for by name: bits of short floats, several products,
limits of targets."""
import dataclasses
import importlib.util
import pathlib
import tempfile
import unittest

import numpy

import tessera
from support import SEED, Case

import arch_filter
import arch_specs_generated
import codegen_common
import gemm_utils
from ctypes_utils import (DispatcherLib, GemmRunner, KernelConfig, preshuffle_weight_matrix,
                          setup_gemm_dispatcher)
from tessera_ck import float_bits, targets


class ShortFloats(Case):
    """bf16, fp8 and bf8 as bits, against the definitions of their formats."""

    def test_bf16_rounds_ties_to_even(self):
        ties = numpy.array([0x3F808000, 0x3F818000], numpy.uint32).view(numpy.float32)
        self.assertEqual(gemm_utils._fp32_to_bf16_u16(ties).tolist(), [0x3F80, 0x3F82])
        odd = numpy.array([numpy.inf, -numpy.inf, numpy.nan, -2.5], numpy.float32)
        there = gemm_utils._bf16_u16_to_fp32(gemm_utils._fp32_to_bf16_u16(odd))
        numpy.testing.assert_array_equal(there, odd)

    def test_tables_of_bytes(self):
        for parts, ocp, largest, nans, infinities in (
                ((4, 3), True, 448, 2, 0), ((4, 3), False, 240, 1, 0),
                ((5, 2), True, 57344, 6, 2), ((5, 2), False, 57344, 1, 0)):
            table = gemm_utils._fp8_decode_table(*parts, ocp)
            finite = table[numpy.isfinite(table)]
            self.assertEqual((finite.max(), finite.min()), (largest, -largest))
            self.assertEqual(numpy.isnan(table).sum(), nans)
            self.assertEqual(numpy.isinf(table).sum(), infinities)
            found = gemm_utils._fp8_encode(finite, *parts, use_ocp=ocp)
            numpy.testing.assert_array_equal(table[found], finite)

            ladder = numpy.unique(numpy.abs(finite).astype(numpy.float64))
            middles = gemm_utils._fp8_encode((ladder[:-1] + ladder[1:]) / 2, *parts, use_ocp=ocp)
            self.assertFalse(numpy.any(middles % 2))
            far = gemm_utils._fp8_encode([1e30, -1e30, numpy.nan], *parts, use_ocp=ocp)
            self.assertEqual(table[far[:2]].tolist(), [largest, -largest])
            self.assertTrue(numpy.isnan(table[far[2]]))

    def test_the_form_is_that_of_the_target(self):
        self.assertEqual([float_bits.uses_ocp(arch) for arch in ("gfx942", "gfx950", "sm90a")],
                         [False, True, True])
        self.assertIs(gemm_utils._fnuz_decode_table(4, 3),
                      gemm_utils._fp8_decode_table(4, 3, False))
        one = numpy.float32([1])
        self.assertNotEqual(gemm_utils._fp32_to_fp8_u8(one, use_ocp=False),
                            gemm_utils._fp32_to_fp8_ocp_u8(one))

    def test_operands_and_results(self):
        values = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
        for word, dtype in (("fp16", "float16"), ("fp32", "float32"), ("int8", "int8"),
                            ("bf16", "uint16"), ("fp8", "uint8"), ("bf8", "uint8")):
            found = gemm_utils._encode_operand(values, word)
            self.assertEqual((found.dtype, found.shape), (dtype, (2, 3)))
            self.assertTrue(found.flags.c_contiguous)
        self.assertEqual(gemm_utils._c_numpy_dtype("int8"), ("int32", numpy.int32))
        bits = gemm_utils._encode_operand(values, "bf16")
        numpy.testing.assert_array_equal(gemm_utils._decode_c(bits, "bf16"), values)
        for call in (lambda: gemm_utils._encode_operand(values, "xyz"),
                     lambda: gemm_utils._c_numpy_dtype("xyz"),
                     lambda: gemm_utils._decode_c(bits, "fp8")):
            self.assertRaises(ValueError, call)


class Products(Case):
    def test_configurations_name_their_operands(self):
        config = gemm_utils.GemmKernelConfig(
            dtype_a="int8", dtype_b="int8", dtype_c="int32", dtype_acc="int32", layout_a="row",
            layout_b="row", layout_c="row", gfx_arch="gfx942")
        self.assertEqual((config.dtype, config.layout, config.dtype_c), ("int8", "rrr", "int32"))
        name = dataclasses.replace(config, dtype="bf16").name
        self.assertEqual((gemm_utils._dtype_from_kernel_name(name),
                          gemm_utils._layout_from_kernel_name(name)), ("bf16", "rrr"))
        self.assertEqual((gemm_utils._dtype_from_kernel_name("gemm"),
                          gemm_utils._layout_from_kernel_name("gemm_fp16_xyz_mem")),
                         ("fp16", "rcr"))
        with self.assertRaisesRegex(tessera.Error, "dtype_b must be fp16"):
            gemm_utils.GemmKernelConfig(dtype_a="fp16", dtype_b="bf16")

    def test_targets_are_told_by_their_plain_names(self):
        self.assertEqual(gemm_utils._resolve_arch("gfx950:sramecc+:xnack-"), "gfx950")
        for arch in ("gfx908:xnack+", "gfx942x", "gfx", "gfx1201:xnack-"):
            with self.assertRaisesRegex(ValueError, arch.partition(":")[0]):
                gemm_utils._resolve_arch(arch)
        for arch in ("gfx908", "", "not-an-arch", "gfx950:sramecc+"):
            self.assertEqual(gemm_utils.normalize_gfx_arch(arch),
                             codegen_common.normalize_gfx_arch(arch))

    def test_several_products_and_further_operands(self):
        random = numpy.random.default_rng(SEED)
        sizes = [(64, 96, 128), (32, 48, 256)]
        a, b = ([random.standard_normal(shape).astype(numpy.float32) for shape in shapes]
                for shapes in ([(m, k) for m, n, k in sizes], [(k, n) for m, n, k in sizes]))
        wanted = [x.astype(float) @ y for x, y in zip(a, b)]
        plain, added = gemm_utils.setup_multiple_gemm_dispatchers([
            gemm_utils.GemmKernelConfig(dtype="fp32", layout="rrr"),
            gemm_utils.GemmKernelConfig(dtype="fp32", layout="rrr", variant="multi_d")],
            verbose=False)
        problem = gemm_utils.GroupedGemmProblem(sizes)
        self.assertEqual(gemm_utils.GroupedGemmProblem.from_dict(problem.to_dict()), problem)
        self.assertEqual((problem.group_count, problem.flops),
                         (2, sum(2.0 * m * n * k for m, n, k in sizes)))
        runner = gemm_utils.GpuGroupedGemmRunner(plain)
        done = runner.run(a, b, problem)
        self.assertTrue(done.success, done.error)
        for found, right in zip(done.outputs, wanted):
            numpy.testing.assert_allclose(found, right, atol=1e-3)
        with self.assertRaisesRegex(tessera.Error, "2 A and 1 B"):
            runner.run(a, b[:1])

        d = random.standard_normal((64, 96)).astype(numpy.float32)
        one = gemm_utils.GpuMultiDGemmRunner(added).run(a[0], b[0], [d])
        self.assertIsInstance(one, gemm_utils.MultiDGemmResult)
        self.assertTrue(one.success, one.error)
        numpy.testing.assert_allclose(one.output, wanted[0] + d, atol=1e-3)

    def test_operands_d_are_those_of_the_problem(self):
        kernel, plain = gemm_utils.setup_multiple_gemm_dispatchers([
            gemm_utils.GemmKernelConfig(dtype="fp32", layout="rrr", variant="multi_d",
                                        elementwise_op=word, num_d_tensors=2)
            for word in ("MultiDMultiply", "PassThrough")], verbose=False)
        problem = gemm_utils.MultiDGemmProblem(24, 40, 16)
        self.assertEqual((problem.num_d, problem.flops), (2, 2.0 * 24 * 40 * 16))
        a, b = self.draw(24, 16), self.draw(16, 40)
        d = [self.draw(24, 40) for _ in range(2)]
        runner = gemm_utils.GpuMultiDGemmRunner(kernel)
        self.assertEqual(runner.num_d_tensors, 2)
        for file, word in ((kernel, "MultiDMultiply"), (plain, "PassThrough")):
            done = gemm_utils.GpuMultiDGemmRunner(file).run(a, b, d, problem)
            self.assertTrue(done.success, done.error)
            wanted = gemm_utils._cde_reference(word, a.astype(float) @ b, d)
            numpy.testing.assert_allclose(done.output, wanted, atol=1e-3, err_msg=f"seed {SEED}")
        with self.assertRaisesRegex(tessera.Error, "1 D, but the problem asks for 2"):
            runner.run(a, b, d[:1], problem)

    def test_references_of_operations(self):
        one, two, three = (numpy.full((2, 2), value, "float16") for value in (2, 3, 5))
        for word, value in (("PassThrough", 2), ("MultiDAdd", 10), ("AddScale", 10),
                            ("MultiDMultiply", 30)):
            found = gemm_utils._cde_reference(word, one, [two, three])
            self.assertEqual((found.dtype, found.min(), found.max()), ("float32", value, value))
            numpy.testing.assert_array_equal(gemm_utils._ab_reference(word, [one, two, three]),
                                             found)
        with self.assertRaisesRegex(ValueError, "no reference for 'Sine'"):
            gemm_utils._cde_reference("Sine", one, [])

    def test_groups_of_operands(self):
        fields = {"dtype": "fp32", "layout": "rrrr", "variant": "multi_abd", "num_d_tensors": 1}
        file, refused = gemm_utils.setup_multiple_gemm_dispatchers([
            gemm_utils.GemmKernelConfig(**fields, cde_elementwise_op="MultiDAdd"),
            gemm_utils.GemmKernelConfig(**fields, a_elementwise_op="MultiDMultiply")],
            verbose=False)
        self.assertIsNone(refused)
        config = gemm_utils.GemmKernelConfig(**fields, b_elementwise_op="AddScale")
        wish = gemm_utils.GemmDispatcherLib(config.to_ctypes_config()).wish
        self.assertEqual(wish.kernels, [])
        self.assertIn("b_elementwise_op must be PassThrough, got AddScale of 2",
                      wish.corrections[0])
        runner = gemm_utils.GpuMultiABDRunner(file, layout4="rrrr", a_elementwise_op="PassThrough",
                                              cde_elementwise_op="MultiDAdd")
        self.assertEqual(runner.tensor_counts, (2, 2, 1))
        problem = gemm_utils.GemmProblem(40, 24, 56)
        done = runner.run(problem, seed=SEED, verify=True)
        self.assertTrue(done.success, done.error)
        self.assertLess(done.max_rel, 1e-4, f"seed {SEED}")
        self.assertEqual(runner.run(problem, seed=SEED).max_rel, None)
        wrong = runner.run(problem, seed=SEED, verify=True, verify_tol=-1.0)
        self.assertFalse(wrong.success)
        self.assertIn("above -1", wrong.error)
        for name in ("layout4", "cde_elementwise_op"):
            with self.assertRaisesRegex(tessera.Error, f"{name} must be "):
                gemm_utils.GpuMultiABDRunner(file, **{name: "ccrr"})
        with self.assertRaisesRegex(tessera.Error, "dtype must be fp32"):
            gemm_utils.GpuGroupedGemmRunner(file, dtype="fp16")

    def test_a_library_of_ones_own(self):
        calls = []

        class Mine:
            def run(self, a, b, c, *sizes):
                calls.append((a.dtype, a.shape, b.shape, c.shape, sizes))
                c[:] = 7
                return status, 2.0
        runner = gemm_utils.GpuGemmRunner("nowhere")
        runner.lib, runner._kernel_name = Mine(), "gemm_bf16_rcr_mem"
        a, b = self.draw(8, 16), self.draw(16, 4)
        for status in (0, -1, -2, -3):
            done = runner.run(a, b, gemm_utils.GemmProblem(8, 4, 16))
            self.assertEqual((done.status, done.success, done.unsupported),
                             (status, status == 0, status == -3))
            self.assertEqual(done.tflops > 0, status == 0)
        self.assertEqual(calls[0], ("uint16", (8, 16), (4, 16), (8, 4), (8, 4, 16)))
        self.assertEqual(done.kernel_name, "gemm_bf16_rcr_mem")

    def test_what_a_status_means(self):
        for status, success, unsupported in ((0, True, False), (-1, False, False),
                                             (-2, False, False), (-3, False, True)):
            for kind, first in ((gemm_utils.GemmResult, None), (gemm_utils.GroupedGemmResult, []),
                                (gemm_utils.MultiDGemmResult, None)):
                result = kind(first, 0.0, status, 0.0, "k")
                self.assertEqual((result.success, result.unsupported), (success, unsupported))


class StreamK(Case):
    """The variant stream_k: the original's names, Tessera's kernels."""

    def config(self, **fields):
        return gemm_utils.GemmKernelConfig(variant="stream_k", gfx_arch="gfx942", **fields)

    def test_names_say_how_parts_are_added(self):
        for word, ending in (("atomic", "_32x32x16_streamk"), ("linear", "_streamk_linear"),
                             ("tree", "_streamk_tree")):
            config = self.config(reduction_strategy=word, dtype="bf16", layout="ccr")
            self.assertTrue(config.name.endswith(ending), config.name)
            self.assertEqual((gemm_utils._dtype_from_kernel_name(config.name),
                              gemm_utils._layout_from_kernel_name(config.name)), ("bf16", "ccr"))
            self.assertEqual(config.to_codegen_json()["streamk_config"],
                             {"reduction_strategy": [word]})
        plain = gemm_utils.GemmKernelConfig(gfx_arch="gfx942")
        self.assertNotIn("streamk", plain.name)
        self.assertNotIn("streamk_config", plain.to_codegen_json())

    def test_the_kernel_is_a_stream_k_one(self):
        lib = gemm_utils.GemmDispatcherLib(self.config().to_ctypes_config())
        self.assertEqual(lib.kernel_names(), [
            "gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_splitordered1_streamk_gfx942"
        ])
        self.assertEqual(lib.select_kernel(256, 384, 4096), lib.kernel_names()[0])
        found = gemm_utils.expand_sweep({
            "tile_config": {"tile_m": [100, 128],
                            "warp_tile_k": {"min": 16, "max": 32, "step": 16}},
            "streamk_config": {"reduction_strategy": ["atomic", "tree"]}}, variant="stream_k",
            arch="gfx942")
        self.assertEqual([(each.tile_m, each.reduction_strategy) for each in found],
                         [(128, "atomic"), (128, "tree")])

    def test_a_target_without_such_kernels_takes_its_own(self):
        config = gemm_utils.GemmKernelConfig(variant="stream_k", dtype="fp32", layout="rrr")
        if targets.resolve().backend != "cpu":
            self.skipTest("GPUs have stream-K kernels")
        lib = gemm_utils.GemmDispatcherLib(config.to_ctypes_config())
        self.assertFalse(lib.wish.is_exact)
        a, b = self.draw(24, 16), self.draw(16, 40)
        self.assertTrue(gemm_utils.GemmRunner(lib).run(a, b, verify=True).verified)

    def test_sources_of_the_c_libraries(self):
        for variant, name in (("stream_k", "streamk_gemm_ctypes_lib.cpp"),
                              ("grouped", "grouped_gemm_ctypes_lib.cpp"),
                              ("multi_d", "multi_d_gemm_ctypes_lib.cpp"),
                              ("multi_abd", "gemm_multi_abd_ctypes_lib.cpp"),
                              ("preshuffle", "gemm_ctypes_lib.cpp"),
                              ("standard", "gemm_ctypes_lib.cpp")):
            config = gemm_utils.GemmKernelConfig(variant=variant)
            self.assertEqual(gemm_utils._ctypes_source_name(config), name)

    def test_they_are_generated(self):
        from ctypes_utils import CodegenRunner
        with tempfile.TemporaryDirectory() as folder:
            runner = CodegenRunner(output_dir=folder, gpu_target="gfx942")
            made = runner.generate("stream_k")
            self.assertTrue(made.success, made.stderr)
            for name in made.instance_names:
                self.assertTrue(name.endswith("_streamk"), name)
            found = CodegenRunner(output_dir=folder, gpu_target="avx2").generate("stream_k")
            self.assertFalse(found.success)
            self.assertIn("no kernel of target 'avx2' is legal", found.stderr)
            one = runner.generate("stream_k", extra_args=["--tile", "256x256x32"])
            self.assertTrue(one.success, one.stderr)
            self.assertTrue(all("_256x256x32_" in name and name.endswith("_streamk")
                                for name in one.instance_names), one.instance_names)


class Files(Case):
    def test_a_setup_has_a_file_that_can_be_loaded(self):
        config = KernelConfig(tile_k=64, gfx_arch="gfx950")
        setup = setup_gemm_dispatcher(config, verbose=False)
        self.assertTrue(setup.success, setup.error)
        self.assertIsInstance(setup.lib.path, pathlib.Path)
        self.assertIn("fp16_rcr_128x128x64_2x2x1_32x32x16_compv4_cshuffle_intrawave",
                      setup.lib.path.name)
        again = DispatcherLib.load(setup.lib.path)
        self.assertEqual((again.kernel_names(), again.path),
                         (setup.lib.kernel_names(), setup.lib.path))
        other = setup_gemm_dispatcher(dataclasses.replace(config, tile_k=32), verbose=False)
        self.assertNotEqual(other.lib.path, setup.lib.path)

    def test_tesseras_library_has_the_default_configuration(self):
        found = DispatcherLib.load(DispatcherLib.find())
        self.assertEqual((found.config, found.path), (KernelConfig(), DispatcherLib.find()))
        self.assertEqual(DispatcherLib().path, DispatcherLib.find())
        with self.assertRaisesRegex(tessera.Error, "none.so cannot be read"):
            DispatcherLib.load("none.so")
        foreign = importlib.util.find_spec("_ctypes").origin
        if foreign and foreign.endswith(".so"):
            with self.assertRaisesRegex(tessera.Error, "neither the functions of the C library"):
                DispatcherLib.load(foreign)

    def test_a_shuffled_weight_can_be_looked_at_and_multiplied(self):
        b = self.draw(32, 48)
        packed = preshuffle_weight_matrix(b)
        self.assertEqual((packed[0:4, 0:4].shape, packed.numbers().dtype), ((4, 4), "float32"))
        held = packed.numbers()
        self.assertTrue(set(held[held != 0].tolist()) <= set(b.ravel().tolist()))
        self.assertGreater(len(set(held.ravel().tolist())), 1)
        a = self.draw(8, 32)
        fp32 = KernelConfig(dtype_a="fp32", dtype_b="fp32", dtype_c="fp32")
        runner = GemmRunner(DispatcherLib(fp32))
        done = runner.run(a, packed)
        if targets.resolve().backend == "cpu":
            self.assertTrue(done.success, done.error)
            self.assertEqual(done.kernel_name, packed.kernel)
            numpy.testing.assert_allclose(done.output, a.astype(float) @ b, atol=1e-3)
        else:
            self.assertIn("give B itself", done.error)
        self.assertIn("cannot be compared", runner.run(a, packed, verify=True).error)
        self.assertIn("packed for a=fp32, and the configuration has a=fp16",
                      GemmRunner(DispatcherLib()).run(a, packed).error)


class Limits(Case):
    def test_shared_memory_is_the_targets_and_the_pipelines(self):
        limits = arch_specs_generated.LDS_CAPACITY_LIMITS_BY_ARCH
        whole = arch_specs_generated.LDS_TOTAL_CAPACITY_BY_ARCH
        limit = arch_specs_generated.get_lds_limit
        self.assertEqual(set(limits), {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200",
                                       "gfx1201", "gfx1250"})
        for arch, pipelines in limits.items():
            self.assertEqual((pipelines["mem"], pipelines["compv4"]),
                             (whole[arch], whole[arch] // 2))
            for pipeline, size in pipelines.items():
                self.assertEqual(limit(arch, pipeline), size)
                self.assertEqual(limit(arch, pipeline, double_smem_buffer=True), whole[arch] // 2)
        self.assertEqual((limit("gfx9999", "default"), limit("compv4", "gfx950")),
                         (65536, 81920))

    def test_tiles_that_do_not_fit_are_told(self):
        def errors(arch, **fields):
            config = arch_filter.KernelConfig(tile_n=256, tile_k=128, warp_tile_k=8,
                                              pipeline="compv3", **fields)
            found = arch_filter.ArchFilter(arch, strict_mode=False).validate_kernel(config)
            return [error for error in found.errors if "LDS capacity exceeded" in error]
        self.assertRegex(errors("gfx942")[0], "98304 bytes.*gfx942 has 65536")
        self.assertEqual(errors("gfx950"), [])
        self.assertTrue(errors("gfx950", double_smem_buffer=True))

    def test_each_operator_has_its_sides(self):
        sides = arch_filter.OPERATOR_TILE_CONSTRAINTS
        self.assertEqual(set(sides), set(arch_filter.OperatorType))
        self.assertEqual(len({tuple(sorted(each)) for each in sides.values()}), 1)
        self.assertEqual(sides[arch_filter.OperatorType.GEMM_PRESHUFFLE]["min_tile_m"], 64)


if __name__ == "__main__":
    unittest.main()
