"""The names, values and forms that programs for the original ask for, beyond the documents."""
import dataclasses
import enum
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from unittest.mock import patch

import numpy

import tessera
from support import COMPAT, SEED, Case

sys.path.insert(0, str(COMPAT / "scripts"))

import codegen_common
import compile_conv_examples as conv_scripts
import compile_gemm_examples as gemm_scripts
import dispatcher_common as common
import kernel_config_loader
import unified_grouped_conv_codegen as conv_codegen
from codegen_common import TileConfig
from ctypes_utils import KernelConfig, auto_correct_kernel_config, setup_gemm_dispatcher
from fmha_utils import (FmhaKernelConfig, FmhaProblem, FmhaRunner, cpu_attention_fwd,
                        validate_fmha_config)
from grouped_conv_utils import (GroupedConvDataType, GroupedConvKernelConfig, GroupedConvProblem,
                                GroupedConvValidationResult, auto_correct_grouped_conv_config,
                                format_grouped_conv_summary, get_grouped_conv_default_config,
                                validate_grouped_conv_config)
from tessera_ck import targets


def printed(work):
    with redirect_stdout(io.StringIO()) as text:
        work()
    return text.getvalue()


class Common(Case):
    def test_folders_lie_where_they_do_in_the_original(self):
        root = common.get_dispatcher_root()
        self.assertEqual(root, COMPAT.resolve())
        self.assertEqual(common.get_ck_root(), root.parent)
        self.assertEqual(common.get_build_dir(), root / "build")
        self.assertEqual(common.get_generated_kernels_dir().parent, root / "build")

    def test_tables_are_asked(self):
        data = common.get_arch_filter_data()
        self.assertIn("gfx942", data["supported_archs"])
        self.assertEqual(common.validate_wave_config([2, 2, 1], "gfx942"), (True, ""))
        for found in (common.validate_wave_config([3, 3, 1], "gfx942"),
                      common.validate_wave_config([2, 2, 1], "gfx000"),
                      common.validate_warp_tile_config([99, 99, 99], "gfx942", "fp16"),
                      common.validate_warp_tile_config([32, 32, 16], "gfx942", "fp99")):
            self.assertFalse(found[0])
            self.assertRegex(found[1], "wave|warp")
        self.assertTrue(common.validate_warp_tile_config([32, 32, 16], "gfx942", "fp16")[0])
        self.assertFalse(common.validate_trait_combo("compv4", "cshuffle", "interwave")[0])
        self.assertTrue(common.validate_trait_combo("mem", "cshuffle", "interwave")[0])

    def test_corrections_are_in_the_tables(self):
        for arch in ("gfx90a", "gfx942", "gfx950"):
            known = common.get_arch_filter_data()["warp_combos"][arch]
            wave = self.random.integers(1, 9, 3).tolist()
            self.assertIn(common.auto_correct_wave(wave, arch), known, f"{wave}, seed {SEED}")
            self.assertEqual(common.auto_correct_wave([2, 2, 1], arch), [2, 2, 1])
        self.assertEqual(common.auto_correct_trait("compv4", "interwave"), ("compv4", "intrawave"))
        self.assertEqual(common.auto_correct_trait("mem", "interwave"), ("mem", "interwave"))

    def test_what_programs_print(self):
        for text in (printed(lambda: common.print_phase(1, "words")),
                     printed(lambda: common.print_success("words")),
                     printed(lambda: common.print_error("words")),
                     printed(lambda: common.print_info("words"))):
            self.assertIn("words", text)
        for paint in (common.Colors.green, common.Colors.red, common.Colors.yellow,
                      common.Colors.bold, common.Colors.cyan):
            with patch.object(common.Colors, "_use_color", return_value=False):
                self.assertEqual(paint("words"), "words")
            with patch.object(common.Colors, "_use_color", return_value=True):
                self.assertRegex(paint("words"), "^\033.*words\033")

    def test_results_of_checks(self):
        made = common.ValidationResultBase(True)
        self.assertEqual((made.errors, made.warnings, made.suggested_fixes), ([], [], {}))
        for kind in (common.ValidationResult, GroupedConvValidationResult):
            self.assertTrue(issubclass(kind, common.ValidationResultBase))

    def test_only_generated_kernels_are_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder) / "some"
            common.cleanup_generated_kernels(place)  # is not there
            place.mkdir()
            (place / "mine.txt").write_text("mine")
            with self.assertRaisesRegex(tessera.Error, "no folder of generated kernels"):
                common.cleanup_generated_kernels(place)
            (place / "kernel_names.json").write_text("{}")
            common.cleanup_generated_kernels(place)
            self.assertFalse(place.exists())


class Codegen(Case):
    def test_pairs_of_traits(self):
        found = codegen_common.valid_trait_configs()
        self.assertIn(("mem", "interwave"), found)
        self.assertNotIn(("compv4", "interwave"), found)

    def test_the_log_names_kernels(self):
        for parallel in (False, True):
            with self.assertLogs(level="INFO") as log:
                codegen_common.parallel_generate(str.upper, ["kernel_1", "kernel_2"], parallel)
            for name in ("kernel_1", "kernel_2"):
                self.assertIn(name, "\n".join(log.output))

    def test_declarations_expand_to_legal_kernels(self):
        wild = {"wave_m": -1, "wave_n": -1, "warp_m": -1, "warp_n": -1, "pipeline": "*",
                "scheduler": "*", "tile_m": 128, "tile_n": 128, "tile_k": 32}
        for arch in ("gfx90a", "gfx942", "gfx950"):
            for dtype in ("fp16", "bf16"):
                made = gemm_scripts.expand_declaration_with_arch_filter(
                    {**wild, "dtype_a": dtype}, arch)
                self.assertGreater(len(made), 1)
                for each in made:
                    self.assertEqual(gemm_scripts.validate_kernel_config(each, arch), (True, ""))
                    self.assertFalse(gemm_scripts.is_wildcard_declaration(each))
                self.assertEqual(len({json.dumps(each, sort_keys=True) for each in made}),
                                 len(made))
        open_waves = {"dtype": "fp16", "tile_k": 128, "tile_c": 128, "wave_m": -1, "wave_n": -1}
        self.assertTrue(conv_scripts.is_conv_wildcard_declaration(open_waves))
        self.assertTrue(conv_scripts.expand_conv_declaration_with_arch_filter(open_waves, "gfx942"))

    def test_declarations_that_are_no_kernels(self):
        for fields, word in (({"wave_m": 3, "wave_n": 3}, "wave"), ({"warp_m": 48}, "warp"),
                             ({"scheduler": "interwave"}, "trait"),
                             ({"pipeline": "compv99"}, "trait")):
            for check in (gemm_scripts.validate_kernel_config,
                          conv_scripts.validate_conv_kernel_config):
                is_valid, sentence = check(fields, "gfx942")
                self.assertFalse(is_valid)
                self.assertIn(word, sentence)
        self.assertIn("unsupported target 'gfx1'",
                      gemm_scripts.validate_kernel_config({}, "gfx1")[1])
        explicit = {"wave_m": 2}
        self.assertEqual(gemm_scripts.expand_declaration_with_arch_filter(explicit, "gfx942"),
                         [explicit])

    def test_sets_in_files(self):
        whole = {"kernel_set_name": "mine", "datatype": {"a": "fp16", "c": "fp32"},
                 "tile_config": {"tile_m": {"values": [128, 256]},
                                 "tile_n": {"min": 64, "max": 192, "step": 64}},
                 "trait_config": {"pipeline": {"values": ["compv3", "compv4"]}},
                 "gpu_targets": ["gfx90a", "gfx942"]}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "set.json"
            file.write_text(json.dumps(whole))
            found = kernel_config_loader.load_kernel_configs(file)
            file.write_text(json.dumps({"tile_config": {"tile_m": {}}}))
            with self.assertRaisesRegex(tessera.Error, "'tile_m' has neither values nor min"):
                kernel_config_loader.load_kernel_configs(file)
        made = list(found.generate_configs())
        self.assertEqual((found.name, found.config_count(), len(made)), ("mine", 24, 24))
        self.assertEqual((found.tile_n_values, found.dtype_c, found.pad_m_values),
                         ([64, 128, 192], "fp32", [False]))
        self.assertEqual(len({each.kernel_name() for each in made}), 12)
        text = kernel_config_loader.generate_cpp_kernel_set_declaration(found)
        self.assertTrue(text.startswith("DECL_KERNEL_SET(mine,"))
        self.assertEqual(text.count(".add("), 24)


class ConvCodegen(Case):
    def config(self, **fields):
        made = dict(tile=TileConfig(128, 128, 32, 2, 2, 1, 32, 32, 16),
                    trait=conv_codegen.GroupedConvTraitConfig("mem", "cshuffle", "intrawave"),
                    variant=conv_codegen.GroupedConvVariant.FORWARD, arch="gfx942")
        return conv_codegen.GroupedConvKernelConfig(**{**made, **fields})

    def test_words(self):
        self.assertEqual([each.value for each in conv_codegen.GroupedConvVariant],
                         ["forward", "bwd_data", "bwd_weight"])
        self.assertEqual(conv_codegen.GroupedConvTypeMappings.get_layouts(2),
                         {"in": "NHWGC", "wei": "GKYXC", "out": "NHWGK"})
        self.assertEqual(conv_codegen.GroupedConvLayout.NHWGC.value, "NHWGC")
        self.assertEqual(conv_codegen.GroupedConvTypeMappings.DTYPE_TO_CK["fp16"], "half_t")
        with self.assertRaisesRegex(ValueError, "must be 1, 2 or 3, got 4"):
            conv_codegen.GroupedConvTypeMappings.get_layouts(4)

    def test_names_tell_configurations_apart(self):
        staged = self.config(variant=conv_codegen.GroupedConvVariant.BACKWARD_WEIGHT)
        staged.trait.two_stage = True
        names = [self.config().name("fp16"), staged.name("fp16"), self.config().name("bf16"),
                 self.config(vector_sizes=(1, 1, 1)).name("fp16")]
        self.assertIn("grouped_conv_fwd", names[0])
        self.assertTrue("bwd_weight" in names[1] and "_2stage" in names[1])
        self.assertEqual(len(set(names)), 4)
        self.assertTrue(self.config().is_valid_for_arch("gfx942"))
        self.assertFalse(self.config().is_valid_for_arch("gfx600"))

    def test_what_is_generated_is_a_kernel_of_the_target(self):
        config = self.config()
        source = conv_codegen.CKTileGroupedConvKernelGenerator("fp16").generate(config)
        self.assertIn("#pragma once", source)
        self.assertIn("__attribute__((global", source)
        wrong = self.config(tile=TileConfig(100, 128, 32, 2, 2, 1, 32, 32, 16))
        with self.assertRaisesRegex(tessera.Error, "does not divide"):
            conv_codegen.CKTileGroupedConvKernelGenerator("fp16").generate(wrong)
        # A tile of the original's that no kernel here has.
        theirs = self.config(tile=TileConfig(16, 64, 64, 1, 4, 1, 16, 16, 32),
                             variant=conv_codegen.GroupedConvVariant.BACKWARD_WEIGHT)
        self.assertRegex(theirs.kernel("fp16"), "^conv_backwardweight_fp16_.*_gfx942$")
        with tempfile.TemporaryDirectory() as folder:
            made = conv_codegen.UnifiedGroupedConvCodegen(folder, "fp16", 2, "gfx942")
            with patch.object(made, "_get_configs", return_value=[config, wrong]):
                found = made.generate_all(parallel=False)
            self.assertEqual([len(found[key]) for key in ("kernels", "wrappers", "failed")],
                             [1, 1, 1])
            self.assertIn("does not divide", found["failed"][0])
            wrapper = found["wrappers"][0].read_text()
            for word in ("KernelInstancePtr", "GroupedConvKernelKey", config.kernel("fp16")):
                self.assertIn(word, wrapper)

    def test_default_configurations_are_the_shipped_kernels(self):
        weight = conv_codegen.GroupedConvVariant.BACKWARD_WEIGHT
        found = conv_codegen.get_default_configs("gfx942", [weight], [2])
        staged = [each for each in found if each.trait.two_stage]
        self.assertEqual(2 * len(staged), len(found))
        self.assertTrue(staged)
        self.assertEqual(found[0].variant, weight)


class Convolutions(Case):
    NESTED = {"tile_config": {"tile_k": 128, "tile_c": 128, "wave_m": 2, "wave_n": 2, "wave_k": 1,
                              "warp_m": 32, "warp_n": 32, "warp_k": 16},
              "trait_config": {"pipeline": "compv4", "epilogue": "cshuffle",
                               "scheduler": "intrawave"},
              "variant": "2d_fwd", "ndim_spatial": 2, "arch": "gfx942", "layout": "nhwgc",
              "dtype": "fp16"}

    def nested(self, **fields):
        made = json.loads(json.dumps(self.NESTED))
        for key, value in fields.items():
            part = "tile_config" if key in made["tile_config"] else "trait_config"
            made[part][key] = value
        return made

    def test_two_parts(self):
        found = validate_grouped_conv_config(self.NESTED)
        self.assertEqual((found.is_valid, found.errors), (True, []))
        for fields, word in (({"wave_m": 3, "wave_n": 3}, "wave"), ({"warp_m": 99}, "warp"),
                             ({"scheduler": "interwave"}, "trait")):
            given = self.nested(**fields)
            wrong = validate_grouped_conv_config(given)
            self.assertFalse(wrong.is_valid)
            self.assertIn(word, " ".join(wrong.errors))
            corrected, result = auto_correct_grouped_conv_config(given)
            self.assertTrue(validate_grouped_conv_config(corrected).is_valid, corrected)
            self.assertTrue(result.suggested_fixes)
            self.assertEqual(given, self.nested(**fields))  # is left alone
        missing = validate_grouped_conv_config({"arch": "gfx942"})
        self.assertEqual(missing.errors, ["the configuration has no 'tile_config'",
                                          "the configuration has no 'trait_config'"])

    def test_a_configuration_and_its_dict_say_the_same(self):
        for variant in ("forward", "bwd_data", "bwd_weight"):
            config = get_grouped_conv_default_config(variant, 2, "gfx942")
            whole = config.to_dict()
            self.assertEqual((whole["variant"], whole["arch"], whole["layout"]),
                             (variant, "gfx942", "nhwgc"))
            self.assertTrue(validate_grouped_conv_config(whole).is_valid)
            whole["tile_config"]["warp_m"] = [99]
            corrected, _ = auto_correct_grouped_conv_config(whole)
            self.assertIn(corrected["tile_config"]["warp_m"][0], (32, 64))
            self.assertTrue(validate_grouped_conv_config(corrected).is_valid)
            self.assertEqual(format_grouped_conv_summary(config),
                             format_grouped_conv_summary(config.to_dict()))
        self.assertIn("fp16", format_grouped_conv_summary({}))

    def test_shapes_are_methods_and_all_can_be_printed(self):
        problem = GroupedConvProblem(N=2, C=8, K=12, G=2, Hi=7, Wi=6)
        text = printed(problem.print_problem)
        for shape in (problem.input_shape(), problem.weight_shape(), problem.output_shape()):
            self.assertIn(str(shape), text)
        config = GroupedConvKernelConfig(tile_n=64)
        self.assertEqual((config.tile_str, config.wave_str, config.warp_str, config.vec_str),
                         ("1x64x128", "2x2x1", "32x32x16", "4x8x8"))
        self.assertIn("1x64x128", printed(config.print_config))
        self.assertEqual([each.name for each in GroupedConvDataType],
                         ["FP16", "BF16", "FP32", "FP8", "BF8", "INT8"])
        self.assertTrue(issubclass(GroupedConvDataType, enum.Enum))


class Gemm(Case):
    def test_corrections_are_three_values(self):
        wrong = KernelConfig(gfx_arch="gfx942", wave_m=99, wave_n=99, wave_k=99)
        corrected, is_changed, corrections = auto_correct_kernel_config(wrong)
        self.assertTrue(is_changed)
        self.assertTrue(corrections)
        self.assertIn([corrected.wave_m, corrected.wave_n, corrected.wave_k],
                      common.get_arch_filter_data()["warp_combos"]["gfx942"])

    def test_waves_of_no_machine_are_corrected_without_a_target(self):
        _, is_changed, corrections = auto_correct_kernel_config(
            KernelConfig(wave_m=99, wave_n=99, wave_k=99))
        self.assertTrue(is_changed)
        self.assertTrue(corrections)

    def test_the_library_has_a_path(self):
        setup = setup_gemm_dispatcher(KernelConfig(dtype_a="fp32", dtype_b="fp32",
                                                   dtype_c="fp32"), verbose=False)
        self.assertTrue(pathlib.Path(setup.lib.path).is_file())
        self.assertEqual((setup.config.tile_str, setup.config.wave_str), ("128x128x32", "2x2x1"))
        if targets.resolve().backend == "cpu":
            self.assertEqual(setup.config.warp_str, "32x32x16")


class Attention(Case):
    def test_shapes_are_methods(self):
        p = FmhaProblem(2, 8, 4, 5, 7, 16, 32)
        self.assertEqual((p.q_shape(), p.k_shape(), p.v_shape(), p.o_shape()),
                         ((2, 8, 5, 16), (2, 4, 7, 16), (2, 4, 7, 32), (2, 8, 5, 32)))

    def test_groups_of_fields_and_the_generators_form(self):
        config = FmhaKernelConfig(tile_m0=64, pad_s=False, mask="b", bias="bias",
                                  gfx_arch="gfx942")
        self.assertEqual(config.tile, (64, 128, 32, 128, 32, 128))
        self.assertEqual(config.wave, (4, 1, 1, 4, 1, 1, 1, 1, 1))
        self.assertEqual(config.warp, (32, 32, 16, 32, 32, 16, 16, 16, 16))
        self.assertEqual(config.padding, (False, True, True, True))
        whole = json.loads(config.to_codegen_json())
        self.assertEqual((whole["signature"]["mask"], whole["signature"]["bias"], whole["arch"]),
                         ("bottom_right", "bias", "gfx942"))
        from tessera_ck import fmha_configs
        again = FmhaKernelConfig(**fmha_configs.fields_of(whole))
        self.assertEqual(dataclasses.replace(again, mask="b", bias="bias", pad_s=False), config)

    def test_the_originals_rules_hold_on_its_targets(self):
        self.assertTrue(validate_fmha_config(FmhaKernelConfig(gfx_arch="gfx942")).is_valid)
        for fields, sentence in (({"hdim_q": 65}, "multiples of 8"),
                                 ({"bias": "bias", "logits": True}, "logits_soft_cap"),
                                 ({"pipeline": "qr_async_trload"}, "qr_async_trload"),
                                 ({"family": "fwd_pagedkv", "paged_kv": True}, "qr_pagedkv"),
                                 ({"data_type": "fp8", "gfx_arch": "gfx90a"}, "dtype fp8")):
            found = validate_fmha_config(FmhaKernelConfig(**{"gfx_arch": "gfx942", **fields}))
            self.assertFalse(found.is_valid, fields)
            self.assertIn(sentence, " ".join(found.errors))

    def test_words_of_masks_and_biases(self):
        p = FmhaProblem(1, 2, 1, 5, 7, 8, 8)
        q, k, v = (self.draw(*shape, dtype="float16")
                   for shape in (p.q_shape(), p.k_shape(), p.v_shape()))
        bias = self.draw(1, 2, 5, 7, dtype="float16")
        runner = FmhaRunner.from_prebuilt()
        for word in ("bias", "elementwise", 1):
            result = runner.run(q, k, v, p, bias_type=word, bias=bias, verify=True)
            self.assertTrue(result.success, result.error)
        masked = runner.run(q, k, v, p, mask_type="b")
        numpy.testing.assert_allclose(masked.output.astype("float64"),
                                      cpu_attention_fwd(q, k, v, p.scale, 2), atol=5e-3)
        runner.cleanup()

    def test_queries_of_another_type_than_the_cache(self):
        p = FmhaProblem(1, 2, 1, 5, 7, 8, 8)
        q, k = self.draw(1, 2, 5, 8, dtype="float16"), numpy.zeros((1, 1, 7, 8), "uint8")
        with self.assertRaisesRegex(ValueError, "does not yet support mixed Q/KV dtypes"):
            FmhaRunner.from_prebuilt().run(q, k, k, p, api_family="batch_prefill")


class AttentionCodegen(Case):
    """codegen/fmha: the rules by their sentences, profiles, numbers of words, and the script."""

    def config(self, signature=None, algorithm=None, arch="gfx942"):
        from tessera_ck import fmha_configs
        made = fmha_configs.parts_of(FmhaKernelConfig(gfx_arch=arch, block_per_cu=1))
        made["signature"].update(signature or {})
        made["algorithm"].update(algorithm or {})
        return made

    def test_rules(self):
        from fmha.validation import validate_config
        prefill = {"family": "batch_prefill", "mode": "group", "paged_kv": True, "page_size": 16}
        for signature, algorithm, sentence in (
                ({}, {}, ""), (prefill, {}, ""), ({"mask": "generic"}, {}, ""),
                ({}, {"tile": [128, 64, 32, 128, 16, 128]}, ""),
                ({"hdim_q": 65}, {}, "multiples of 8"),
                ({"bias": "bias", "logits": True}, {}, "logits_soft_cap"),
                ({"family": "sideways"}, {}, "no family"),
                ({"data_type": "mxfp4"}, {}, "dtype mxfp4"),
                ({"family": "bwd_dot_do_o", "data_type": "fp8"}, {"pipeline": "qr"},
                 "bwd_dot_do_o has no dtype fp8"),
                ({}, {"pipeline": "v3"}, "pipeline v3"),
                ({}, {"tile": [1, 2]}, "6, 9 and 9 numbers"), ({}, {"block_per_cu": 0},
                                                              "block_per_cu"),
                ({}, {"num_wave_groups": 0}, "num_wave_groups"),
                ({**prefill, "vlayout": "c"}, {}, "row-major"),
                ({**prefill, "mode": "batch"}, {}, "group mode"),
                ({**prefill, "page_size": 12}, {}, "power of two"),
                ({**prefill, "q_data_type": "bf16", "kv_data_type": "fp8"}, {},
                 "mixed activation/FP8-KV dtype contract"),
                ({"family": "fwd_appendkv"}, {}, "appendkv pipeline"),
                ({"family": "fwd_pagedkv", "paged_kv": True}, {}, "qr_pagedkv"),
                ({"family": "fwd_splitkv"}, {}, "qr_nwarp_sshuffle"),
                ({"family": "fwd_splitkv_combine"}, {"pipeline": "qr"}, "bn1"),
                ({"hdim_q": 256, "hdim_v": 256}, {"pipeline": "qr",
                                                  "tile": [64, 64, 32, 128, 32, 256]},
                 "multiple of 8")):
            found = validate_config(self.config(signature, algorithm))
            self.assertEqual(found.valid, not sentence, f"{signature} {algorithm} {found.errors}")
            if sentence:
                self.assertIn(sentence, " ".join(found.errors))
        self.assertIn("architecture", validate_config(self.config(arch="gfx942") | {
            "arch": "gfx000"}).errors[0])
        few = validate_config(self.config({"hdim_q": 192, "hdim_v": 128, "dropout": True}))
        self.assertIn("(192,128)", few.warnings[0])

    def test_tables_are_a_file_that_is_read_and_written(self):
        from fmha import validation
        specs = validation.load_arch_specs()
        specs["architectures"]["gfx999"] = dict(specs["architectures"]["gfx942"])
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "specs.json"
            validation.save_arch_specs(specs, file)
            self.assertEqual(json.loads(file.read_text()), specs)
        asked = self.config() | {"arch": "gfx999"}
        self.assertTrue(validation.validate_config(asked, specs).valid)
        self.assertFalse(validation.validate_config(asked).valid)

    def test_profiles(self):
        from fmha.validation import Receipt, get_profile, profile_allows
        alibi, plain = self.config({"bias": "alibi"}), self.config()
        self.assertFalse(profile_allows(alibi, profile="pytorch"))
        self.assertTrue(profile_allows(alibi, receipt=2))
        self.assertTrue(profile_allows(self.config({"bias": "elementwise"}), receipt=4))
        self.assertTrue(profile_allows(plain, receipt=100))
        self.assertFalse(profile_allows(plain, receipt=200))  # batches, not groups
        self.assertFalse(profile_allows(plain, receipt=3))
        self.assertFalse(profile_allows(self.config({"data_type": "fp8bf16", "hdim_q": 64}),
                                        profile="aiter_cpp"))
        for receipt in Receipt:
            self.assertEqual(get_profile(receipt=receipt.value).name, receipt.name.lower())
        with self.assertRaisesRegex(KeyError, "no profile 'mine'"):
            get_profile("mine")

    def test_words_and_names(self):
        from fmha import symbol_map
        self.assertEqual([symbol_map.MASK_TO_INT[symbol_map.canonical_mask(word)]
                          for word in ("no_mask", "causal", "b", "window_generic")], [0, 1, 2, 3])
        self.assertEqual(symbol_map.FWD_DTYPE_MAP["fp8bf16"], "FmhaFwdFp8Bf16")
        names = {symbol_map.kernel_name_from_config(self.config(signature)) for signature in (
            {}, {"lse": True}, {"hdim_v": 64}, {"bias": "bias"}, {"bias": "elementwise"})}
        self.assertEqual(len(names), 5)
        for name in names:
            self.assertRegex(name, "^fmha_fwd_fp16_batch_h128x(128|64)_qr_async_[0-9a-f]{12}$")

    def test_the_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script = [sys.executable, str(COMPAT / "codegen/fmha/codegen.py"), "--output-dir",
                      folder, "--gpu-target", "gfx942", "--config-json"]
            made = subprocess.run([*script, json.dumps(self.config())], capture_output=True,
                                  text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            headers = list(pathlib.Path(folder).glob("fmha_*.hpp"))
            wrappers = list(pathlib.Path(folder).glob(
                "dispatcher_wrappers/dispatcher_wrapper_fmha_*.hpp"))
            self.assertEqual((len(headers), len(wrappers)), (1, 1))
            source = headers[0].read_text()
            self.assertIn("__attribute__((global", source)
            self.assertIn("kHeadSize = 128", source)
            wrong = subprocess.run([*script, json.dumps(self.config({"hdim_q": 65}))],
                                   capture_output=True, text=True)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("multiples of 8", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
