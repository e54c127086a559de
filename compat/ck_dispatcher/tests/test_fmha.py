"""Attention as the documents show it: fmha_utils."""
import pathlib
import tempfile
import unittest

import numpy

import tessera
from support import SEED, Case

from fmha_utils import (FmhaDispatcherLib, FmhaKernelConfig, FmhaKernelSpec, FmhaProblem,
                        FmhaRegistry, FmhaRunner, FmhaValidator, cpu_attention_bwd,
                        cpu_attention_fwd, cpu_attention_fwd_with_intermediates,
                        cpu_attention_lse, fmha_compile_flags, setup_fmha_dispatcher,
                        setup_multiple_fmha_dispatchers, spec_to_config, validate_fmha_config)
from tessera_ck import targets

PROBLEM = FmhaProblem(batch=2, nhead_q=4, nhead_k=2, seqlen_q=5, seqlen_k=19, hdim_q=16, hdim_v=24)
NEAR = FmhaValidator(rtol=2e-3, atol=4e-3)


class Attention(Case):
    def setUp(self):
        super().setUp()
        self.runner = FmhaRunner.from_prebuilt()
        p = PROBLEM
        self.q, self.k, self.v = (self.draw(*shape, dtype="float16")
                                  for shape in (p.q_shape(), p.k_shape(), p.v_shape()))

    def near(self, result, wanted):
        self.assertTrue(result.success, result.error)
        ok, largest, _ = NEAR.check(result.output, wanted)
        self.assertTrue(ok, f"{largest}, seed {SEED}")

    def test_forward_with_every_mask(self):
        for mask in (0, 1, 2, "causal"):
            result = self.runner.run(self.q, self.k, self.v, PROBLEM, mask_type=mask, verify=True)
            self.near(result, cpu_attention_fwd(self.q, self.k, self.v, PROBLEM.scale, mask))
        self.assert_here(result.target)

    def test_families_compute_the_same(self):
        wanted = cpu_attention_fwd(self.q, self.k, self.v, PROBLEM.scale, 2)
        for family, how in (("fwd_splitkv", {"num_splits": 2}), ("fwd_pagedkv", {"page_size": 8}),
                            ("batch_prefill", {"page_size": 8, "kv_lookup": "sglang"})):
            result = self.runner.run(self.q, self.k, self.v, PROBLEM, mask_type=2, verify=True,
                                     api_family=family, **how)
            self.near(result, wanted)

    def test_log_sum_exp_and_bias(self):
        bias = self.draw(2, 4, 5, 19, dtype="float16")
        result = self.runner.run(self.q, self.k, self.v, PROBLEM, bias_type=1, bias=bias,
                                 verify=True, has_lse=True)
        self.assertTrue(result.success, result.error)
        scores = (PROBLEM.scale * self.q.astype("float64") @
                  numpy.repeat(self.k.astype("float64"), 2, 1).transpose(0, 1, 3, 2) + bias)
        lse = numpy.log(numpy.exp(scores).sum(-1))
        ok, largest, _ = NEAR.check(result.outputs["lse"], lse)
        self.assertTrue(ok, f"{largest}, seed {SEED}")

    def test_switches_without_values(self):
        result = self.runner.run(self.q, self.k, self.v, PROBLEM, mask_type=3, window=(3, 0),
                                 verify=True,
                                 bias_type=2, slopes=numpy.ones(4), has_dropout=True,
                                 has_logits=True, has_sink=True, has_skip=True)
        self.assertTrue(result.success, result.error)

    def test_appending(self):
        p = PROBLEM
        k_new, v_new = self.k[:, :, :p.seqlen_q].copy(), self.v[:, :, :p.seqlen_q].copy()
        result = self.runner.run(self.q, k_new, v_new, p, api_family="fwd_appendkv", verify=True)
        self.assertTrue(result.success, result.error)
        numpy.testing.assert_array_equal(result.outputs["k"][:, :, :p.seqlen_q], k_new)
        numpy.testing.assert_array_equal(result.outputs["v"][:, :, :p.seqlen_q], v_new)
        turned = self.runner.run(self.q, k_new, v_new, p, api_family="fwd_appendkv", verify=True,
                                 rope="half_rotated")
        self.assertTrue(turned.success, turned.error)
        angles = numpy.arange(5)[:, None] * 10000.0 ** (-numpy.arange(8) / 8)
        x, y = (self.q[..., part].astype("float64") for part in (slice(0, 8), slice(8, 16)))
        wanted = numpy.concatenate([x * numpy.cos(angles) - y * numpy.sin(angles),
                                    x * numpy.sin(angles) + y * numpy.cos(angles)], axis=-1)
        self.near(turned, wanted)

    def test_the_originals_words_of_a_call(self):
        p, arrays = PROBLEM, (self.q, self.k, self.v)
        plain = self.runner.run(*arrays, p, window=(2, 0))
        words = dict(perm=1, is_v_rowmajor=1, is_group_mode=0, traits_hdim_q=0, kv_layout=0)
        same = self.runner.run(*arrays, p, window_left=2, window_right=0, **words)
        numpy.testing.assert_array_equal(plain.output, same.output)
        for family in ("splitkv", "pagedkv"):
            found = self.runner.run(*arrays, p, api_family=family, num_splits=2, page_size=8,
                                    paged_kv=int(family == "pagedkv"), verify=True)
            self.assertTrue(found.success, found.error)
        new = [x[:, :, :p.seqlen_q].copy() for x in arrays[1:]]
        turned = [self.runner.run(self.q, *new, p, api_family=family, **word).output
                  for family, word in (("appendkv", {"rope_type": 1, "seqlen_knew": p.seqlen_q}),
                                       ("fwd_appendkv", {"rope": "interleaved"}))]
        numpy.testing.assert_array_equal(*turned)
        for word, value in (("perm", 0), ("is_group_mode", 1), ("rope_type", 7)):
            self.assertIn(word, self.runner.run(*arrays, p, **{word: value}).error)
        lib = FmhaDispatcherLib(FmhaKernelConfig())
        runner = FmhaRunner(lib, lib.target.name)
        self.assertEqual(runner.kernel_count, lib.kernel_count())
        self.assertTrue(runner.run(*arrays, p).success)
        self.assertEqual(FmhaRunner.from_prebuilt("gfx942").lib.target.name, "gfx942")

    def test_gradients(self):
        p = PROBLEM
        given = self.q, self.k, self.v, p.scale
        out, weights = cpu_attention_fwd_with_intermediates(*given)
        lse = cpu_attention_lse(*given)
        grad = self.draw(*p.o_shape(), dtype="float16")
        result = self.runner.run_bwd(self.q, self.k, self.v, out.astype("float16"),
                                     lse.astype("float32"), grad, p)
        self.assertTrue(result.success, result.error)
        wanted = cpu_attention_bwd(self.q, self.k, self.v, out, grad, weights, p.scale)
        for name, got, exact in zip(("dq", "dk", "dv"), result.output, wanted):
            ok, largest, _ = FmhaValidator(1e-2, 1e-2).check(got, exact)
            self.assertTrue(ok, f"{name}: {largest}, seed {SEED}")

    def test_refusals_are_sentences(self):
        wrong = self.runner.run(self.q[:1], self.k, self.v, PROBLEM)
        self.assertEqual(wrong.error,
                         "Q must have the shape (2, 4, 5, 16), got (1, 4, 5, 16)")
        with self.assertRaisesRegex(TypeError, "no argument colour"):
            self.runner.run(self.q, self.k, self.v, PROBLEM, colour=1)
        family = self.runner.run(self.q, self.k, self.v, PROBLEM, api_family="sideways")
        self.assertIn("api_family must be one of", family.error)


class Validators(Case):
    def test_one_wrong_element_fails(self):
        wanted = self.draw(3, 4, 5)
        got = wanted.copy()
        place = tuple(int(self.random.integers(0, n)) for n in got.shape)
        for wrong in (got[place] + 1, numpy.nan):
            got[place] = wrong
            self.assertFalse(FmhaValidator().check(got, wanted)[0], f"seed {SEED}")

    def test_the_reference_against_its_definition(self):
        q, k, v = self.draw(1, 1, 2, 3), self.draw(1, 1, 4, 3), self.draw(1, 1, 4, 2)
        out, p = cpu_attention_fwd_with_intermediates(q, k, v, 0.5, 1)
        lse = cpu_attention_lse(q, k, v, 0.5, 1)
        for i in range(2):
            e = [numpy.exp(0.5 * float(q[0, 0, i].astype("f8") @ k[0, 0, j])) for j in range(i + 1)]
            self.assertAlmostEqual(lse[0, 0, i], numpy.log(sum(e)), places=5)
            row = sum(x / sum(e) * v[0, 0, j].astype("f8") for j, x in enumerate(e))
            numpy.testing.assert_allclose(out[0, 0, i], row, atol=1e-5)
            self.assertEqual(p[0, 0, i, i + 1:].sum(), 0)


class SetUp(Case):
    def test_files_and_runners(self):
        with tempfile.TemporaryDirectory() as folder:
            seen = []
            configs = [FmhaKernelConfig(data_type="fp32"), FmhaKernelConfig(gfx_arch="gfx950")]
            results = setup_multiple_fmha_dispatchers(
                configs, folder, progress_callback=lambda *place: seen.append(place))
            self.assertEqual(seen, [("compile", 1, 2), ("compile", 2, 2)])
            self.assertTrue(results[0].success, results[0].error)
            self.assertTrue(pathlib.Path(results[0].library_path).is_file())
            if not targets.pipelines(targets.resolve("gfx950"), "fmha"):
                self.assertEqual(results[1].error, "target gfx950 has no kernels for attention")
            p = FmhaProblem(1, 2, 2, 4, 6, 8, 8)
            runner = FmhaRunner.from_library(results[0].library_path)
            self.assertIsNone(runner._lib)
            found = runner.run(self.draw(*p.q_shape()), self.draw(*p.k_shape()),
                               self.draw(*p.v_shape()), p, data_type="fp32", verify=True)
            self.assertTrue(found.success, found.error)

    def test_names_have_all_that_differs(self):
        names = {FmhaKernelConfig(**fields).name for fields in (
            {}, {"mask": "top_left"}, {"tile_m0": 64}, {"lse": True}, {"wave_m2": 2})}
        self.assertEqual(len(names), 5)
        self.assertTrue(validate_fmha_config(FmhaKernelConfig()).is_valid)
        bad = validate_fmha_config(FmhaKernelConfig(mask="round"))
        self.assertIn("mask must be one of", bad.errors[0])
        self.assertIsInstance(fmha_compile_flags(), list)

    def test_a_tile_of_the_originals_is_a_wish_on_amd(self):
        for arch, corrections in (("gfx942", 1), ("sm90a", 0)):
            found = validate_fmha_config(FmhaKernelConfig(
                pipeline="qr" if corrections else "tmaws", tile_m0=64, tile_n0=128, hdim_q=128,
                hdim_v=128, gfx_arch=arch))
            self.assertEqual(found.is_valid, bool(corrections), found)
            told = found.warnings if corrections else found.errors
            self.assertRegex(" ".join(told), "64x128x128")

    def test_determinism_is_of_a_call(self):
        problem = tessera.Problem("fmha kind=backward batch=2 heads=16 seqlen_q=4096 seqlen_k=4096 "
                                  "hdim=128 dtype=bf16")
        lib = FmhaDispatcherLib(FmhaKernelConfig(data_type="bf16", gfx_arch="sm90a"))
        names = [lib.live(strict).select(problem)["kernel"] for strict in (False, True)]
        self.assertIn("splitatomic", names[0])
        self.assertNotIn("splitatomic", names[1])

    def test_a_registry_selects(self):
        registry = FmhaRegistry("mine")
        self.assertTrue(registry.register_kernel(spec_to_config(FmhaKernelSpec(hdim=64))))
        self.assertFalse(registry.register_kernel(spec_to_config(FmhaKernelSpec(hdim=64))))
        self.assertEqual(registry.select(PROBLEM).hdim_q, 64)
        self.assertIsNone(registry.select(PROBLEM, "bf16"))
        made = setup_fmha_dispatcher(registry.kernels[0])
        self.assertTrue(made.success)

        config = spec_to_config(FmhaKernelSpec(hdim=64), dtype="fp32", arch=None)
        self.assertEqual((config.data_type, config.hdim_v), ("fp32", 64))
        p = FmhaProblem(1, 2, 2, 4, 6, 64, 64)
        found = setup_fmha_dispatcher(config).runner.run(*(self.draw(*shape) for shape in (
            p.q_shape(), p.k_shape(), p.v_shape())), p, verify=True)  # its type is the config's
        self.assertTrue(found.success, found.error)


if __name__ == "__main__":
    unittest.main()
