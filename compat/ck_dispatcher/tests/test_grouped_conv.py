"""Grouped convolutions as the documents show them: grouped_conv_utils and ck_tile.dispatcher."""
import dataclasses
import json
import pathlib
import tempfile
import unittest

import numpy

import tessera
from support import SEED, Case

from grouped_conv_utils import (GpuGroupedConvRunner, GroupedConvDispatcherLib,
                                GroupedConvKernelConfig, GroupedConvProblem, GroupedConvRegistry,
                                auto_correct_grouped_conv_config, format_grouped_conv_summary,
                                get_grouped_conv_default_config,
                                setup_multiple_grouped_conv_dispatchers,
                                validate_grouped_conv_config)
from tessera_ck import conv, targets


def small(**fields):
    return GroupedConvProblem(**{**dict(N=2, C=8, K=12, G=2, Hi=7, Wi=6, pad_h=1, pad_w=1),
                                 **fields})


def forward(x, w, p):
    """In fp64, as the definition says it: x (N, Hi, Wi, G, C/G), w (G, K/G, Y, X, C/G)."""
    x, w = x.astype("float64"), w.astype("float64")
    padded = numpy.pad(x, ((0, 0), (p.pad_h,) * 2, (p.pad_w,) * 2, (0, 0), (0, 0)))
    out = numpy.zeros(p.output_shape())
    for i in range(p.Ho):
        for j in range(p.Wo):
            patch = padded[:, i * p.stride_h:i * p.stride_h + p.dilation_h * p.Y:p.dilation_h,
                           j * p.stride_w:j * p.stride_w + p.dilation_w * p.X:p.dilation_w]
            out[:, i, j] = numpy.einsum("nyxgc,gkyxc->ngk", patch, w)
    return out


class Documented(Case):
    def test_the_package(self):
        from ck_tile.dispatcher import GroupedConvProblem, GroupedConvRegistry
        problem = GroupedConvProblem(N=1, C=8, K=8, G=1, Hi=6, Wi=6, Y=3, X=3, stride_h=1,
                                     stride_w=1, pad_h=1, pad_w=1, dtype="fp32",
                                     direction="forward")
        x, w = self.draw(*problem.input_shape()), self.draw(*problem.weight_shape())
        result = GroupedConvRegistry().run(problem, x, w, verify=True)
        self.assertTrue(result.success, result.error)
        self.assert_here(result.target)
        numpy.testing.assert_allclose(result.output, forward(x, w, problem), rtol=1e-4, atol=1e-3)

    def test_a_named_target_that_is_not_here(self):
        from ck_tile.dispatcher import GroupedConvRegistry
        p = small()
        result = GroupedConvRegistry(arch="gfx1100").run(p, self.draw(*p.input_shape()),
                                                        self.draw(*p.weight_shape()))
        self.assertFalse(result.success)
        self.assertIn("target 'gfx1100' needs ", result.error)


class Run(Case):
    def test_every_direction(self):
        p = small(stride_h=2, dtype="fp32")
        x, w = self.draw(*p.input_shape()), self.draw(*p.weight_shape())
        registry = GroupedConvRegistry()
        out = registry.run(p, x, w, verify=True)
        self.assertTrue(out.success, out.error)
        numpy.testing.assert_allclose(out.output, forward(x, w, p), rtol=1e-4, atol=1e-3)
        grad = self.draw(*p.output_shape())
        # <grad, conv(x, w)> is linear in x and in w, whose gradients these are.
        wanted = float((grad.astype("float64") * forward(x, w, p)).sum())
        dx = registry.run(small(stride_h=2, dtype="fp32", direction="bwdd"), grad, w,
                          verify=True)
        dw = registry.run(small(stride_h=2, dtype="fp32", direction="2d_bwdw"), x, grad,
                          verify=True)
        for result, other in ((dx, x), (dw, w)):
            self.assertTrue(result.success, result.error)
            got = float((result.output.astype("float64") * other).sum())
            self.assertAlmostEqual(got, wanted, delta=1e-3 * (1 + abs(wanted)), msg=f"{SEED}")

    def test_the_originals_words_of_layouts(self):
        p = small()
        x, w = self.draw(*p.input_shape()), self.draw(*p.weight_shape())
        for layout in ("NHWGC_GKYXC_NHWGK", "nhwgc", "NWGC"):
            config = GroupedConvKernelConfig(dtype="fp32", layout=layout, scheduler="default")
            result = GroupedConvDispatcherLib(config).run(x, w, p, verify=True)
            self.assertTrue(result.success, result.error)
        with self.assertRaisesRegex(tessera.Error, "layout must be nhwgc or nchw, got 'gnhwc'"):
            GroupedConvDispatcherLib(GroupedConvKernelConfig(dtype="fp32", layout="gnhwc"))

    def test_three_dimensions(self):
        p = GroupedConvProblem(N=1, C=4, K=4, Hi=5, Wi=5, Di=4, Z=2, Y=2, X=2, dtype="fp32")
        self.assertEqual((p.is_3d, p.ndim_spatial, p.Do), (True, 3, 3))
        result = GroupedConvRegistry().run(p, self.draw(*p.input_shape()),
                                           self.draw(*p.weight_shape()), verify=True)
        self.assertTrue(result.success, result.error)
        self.assertEqual(result.output.shape, p.output_shape())

    def test_results_go_where_they_are_asked_to(self):
        p = small()
        lib = GroupedConvDispatcherLib(GroupedConvKernelConfig(dtype="fp32"))
        x, w = self.draw(*p.input_shape()), self.draw(*p.weight_shape())
        out = numpy.full(p.output_shape(), 7, "float32")
        self.assertTrue(lib.run(x, w, p, out, verify=True).success)
        numpy.testing.assert_allclose(out, forward(x, w, p), rtol=1e-4, atol=1e-3)
        wrong = lib.run(x, w, p, numpy.zeros(p.output_shape(), "float16"))
        self.assertIn("without gaps", wrong.error)
        self.assertIn("asks for", lib.run(x[:1], w, p).error)

    def test_without_a_check_success_means_that_it_ran(self):
        p = small()
        lib = GroupedConvDispatcherLib(GroupedConvKernelConfig(dtype="fp32"))
        x, w = self.draw(*p.input_shape()), self.draw(*p.weight_shape())
        result = lib.run(x, w, p)
        self.assertTrue(result.success)
        numpy.testing.assert_allclose(result.output, forward(x, w, p), rtol=1e-4, atol=1e-3)


class Problems(Case):
    def test_sizes(self):
        p = GroupedConvProblem()
        self.assertEqual((p.N, p.C, p.K, p.G, p.Hi, p.Y, p.direction), (1, 64, 128, 1, 28, 3,
                                                                        "forward"))
        self.assertEqual((p.Ho, p.Wo), (26, 26))
        self.assertEqual(p.flops, 2 * 26 * 26 * 128 * 64 * 9)
        self.assertEqual(p.input_shape(), (1, 28, 28, 1, 64))
        with self.assertRaisesRegex(ValueError, "C=64 and K=128 must both divide by G=3"):
            GroupedConvProblem(G=3)
        with self.assertRaisesRegex(tessera.Error, "a variant is one of"):
            GroupedConvProblem(direction="sideways")


class Configs(Case):
    def test_names_and_defaults(self):
        config = GroupedConvKernelConfig()
        self.assertEqual(config.name, "grouped_conv_forward_fp16_2d_1x128x128_compv4_intrawave")
        self.assertEqual(GroupedConvKernelConfig(variant="bwdd").pipeline, "compv3")
        self.assertEqual(GroupedConvKernelConfig(variant="bwdw", pipeline="mem").pipeline, "mem")
        marked = GroupedConvKernelConfig(num_groups_to_merge=4, double_smem_buffer=True,
                                         split_image=True, two_stage=True)
        self.assertTrue(marked.name.endswith("_gm4_dsb_si_2stage"))

    def test_validating_and_correcting(self):
        config = dataclasses.asdict(get_grouped_conv_default_config("forward", 2, None, "fp16"))
        self.assertTrue(validate_grouped_conv_config(config).is_valid)
        wrong = validate_grouped_conv_config({**config, "pipeline": "packab", "tile_m": 3})
        if "packab" in targets.pipelines(targets.resolve(), "conv"):
            self.assertFalse(wrong.is_valid)
            corrected, _ = auto_correct_grouped_conv_config(
                {**config, "pipeline": "packab", "tile_m": 3})
            self.assertTrue(validate_grouped_conv_config(corrected).is_valid)
        self.assertFalse(validate_grouped_conv_config({"no_such_field": 1}).is_valid)
        self.assertIn("1x128x128", format_grouped_conv_summary(config))


class Registries(Case):
    def setUp(self):
        super().setUp()
        self.registry = GroupedConvRegistry("mine")
        self.registry.add(GroupedConvKernelConfig(dtype="fp32"))
        self.registry.add(GroupedConvKernelConfig(dtype="fp32", variant="bwd_data"))
        self.registry.add(GroupedConvKernelConfig(dtype="fp16"))

    def test_json_is_lossless(self):
        text = self.registry.to_json()
        self.assertEqual(GroupedConvRegistry.from_json(text).kernels, self.registry.kernels)
        whole = json.loads(text)
        self.assertEqual(whole["metadata"], {"registry_name": "mine", "total_kernels": 3})
        self.assertEqual(whole["statistics"]["by_datatype"], {"fp32": 2, "fp16": 1})

    def test_filters(self):
        self.assertEqual(len(self.registry.filter_by_variant("fwd")), 2)
        here = targets.resolve().name == "gfx942"
        self.assertEqual(len(self.registry.filter_by_arch("gfx942")), 3 if here else 0)
        self.assertEqual(len(self.registry.filter_by_arch(targets.resolve().name)), 3)

    def test_select_follows_directions_types_and_heuristics(self):
        forward_one = small(dtype="fp16")
        self.assertEqual(self.registry.select(forward_one).dtype, "fp16")
        self.assertEqual(self.registry.select(small(), lambda p: ["fp32"]).dtype, "fp32")
        self.assertEqual(self.registry.select(small(direction="bwd_data")).variant, "bwd_data")
        self.assertIsNone(self.registry.select(small(direction="bwd_weight")))
        result = self.registry.run(small(direction="bwd_weight"), None, None)
        self.assertIn("the registry 'mine' has no kernel", result.error)

    def test_build_gives_runners_that_load_late(self):
        runners = self.registry.build(max_workers=2)
        self.assertEqual(set(runners), {("forward", 2), ("bwd_data", 2)})
        runner = runners["forward", 2]
        self.assertIsNone(runner._lib)
        self.assertTrue(runner.is_available())
        p = small()
        result = runner.run(self.draw(*p.input_shape()), self.draw(*p.weight_shape()), p,
                            verify=True)
        self.assertTrue(result.success, result.error)

    def test_a_tile_of_the_originals_is_a_wish_on_amd(self):
        config = GroupedConvKernelConfig(
            ndim_spatial=3, arch="gfx942", tile_m=16, tile_n=64, tile_k=128, wave_m=1, wave_n=4,
            warp_tile_m=16, warp_tile_n=16, warp_tile_k=32, pipeline="compv3")
        found = conv.wish_of(config, targets.resolve("gfx942"))
        self.assertTrue(found.kernels)
        self.assertIn("tile 16x64x128 is no kernel's on gfx942", found.corrections[0])
        for fields in ({"wave_m": 3}, {"warp_tile_k": 99}, {"tile_n": 65}):
            wrong = dataclasses.replace(config, **fields)
            self.assertEqual(conv.wish_of(wrong, targets.resolve("gfx942")).kernels, [])

    def test_paths_of_several(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = setup_multiple_grouped_conv_dispatchers(
                [GroupedConvKernelConfig(dtype="fp32"),
                 GroupedConvKernelConfig(arch="gfx942", tile_m=16, tile_n=65, tile_k=128, wave_m=1,
                                         wave_n=4, warp_tile_m=16, warp_tile_n=16, warp_tile_k=32,
                                         pipeline="compv3")],
                verbose=False, output_dir=folder)
            self.assertIsInstance(paths[0], pathlib.Path)
            self.assertIsNone(paths[1])
            broken = GpuGroupedConvRunner(pathlib.Path(folder) / "none.json")
            self.assertFalse(broken.is_available())
            self.assertIn("cannot be read", broken.get_init_error())
            self.assertIn("Traceback", broken.get_init_traceback())


if __name__ == "__main__":
    unittest.main()
