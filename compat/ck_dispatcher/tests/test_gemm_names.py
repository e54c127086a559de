"""What programs for the original's GEMM ask for by name: bits of short floats, several products,
limits of targets."""
import dataclasses
import unittest

import numpy

import tessera
from support import SEED, Case

import arch_filter
import arch_specs_generated
import codegen_common
import gemm_utils
from tessera_ck import float_bits


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

    def test_what_a_status_means(self):
        for status, success, unsupported in ((0, True, False), (-1, False, False),
                                             (-2, False, False), (-3, False, True)):
            for kind, first in ((gemm_utils.GemmResult, None), (gemm_utils.GroupedGemmResult, []),
                                (gemm_utils.MultiDGemmResult, None)):
                result = kind(first, 0.0, status, 0.0, "k")
                self.assertEqual((result.success, result.unsupported), (success, unsupported))


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
