"""Data and models of the original's form: names, logs, tables, training, judging, choosing."""
import contextlib
import importlib.util
import io
import json
import math
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import numpy

import tessera
from support import SEED, Case

import convert_csv_to_parquet as from_csv
import data_pipeline
import dispatcher_integration as integration
import evaluate
import feature_engine
import ml_heuristic_sweep
import train
from codegen_common import (_native_ab_vector_size, gemm_native_vector_sizes,
                            gemm_problem_vector_sizes)
from feature_engine import GemmUniversalFeatureEngine
from feature_engine_vec import GemmUniversalVecFeatureEngine
from frames import parse_kernel_name
from predict import Predictor, _engine_for_spec
from search import SurrogateSearch

TAIL = "compv3_cshuffle_intrawave_False_False_False_True_128x64x32_1x4x1_16x16x128"
NAME = f"gemm_universal_fp8_rcr_{TAIL}"
# One tree: 1 where the first feature is at most 100, else 2.
STUMP = """tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx={last}
objective=regression
feature_names={names}

Tree=0
num_leaves=2
num_cat=0
split_feature=0
threshold=100
decision_type=2
left_child=-1
right_child=-2
leaf_value=1 2
shrinkage=1


end of trees
"""
PROBLEM = {"m": 1792, "n": 1536, "k": 7168, "dtype": "bf16", "layout": "rcr", "split_k": 1,
           "arch": "gfx950"}
KERNEL = {"tile_m": 128, "tile_n": 128, "tile_k": 128, "warp_m": 2, "warp_n": 2, "warp_k": 1,
          "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "pipeline": "compv3",
          "epilogue": "default", "scheduler": "intrawave", "vec_a": 0, "vec_b": 0, "vec_c": 0}



def quietly(work, *words):
    """Runs a script's function, and gives what it returns and what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
        result = work(*words)
    return result, text.getvalue()


has_tables = unittest.skipUnless(all(importlib.util.find_spec(name) for name in (
    "pandas", "pyarrow")), "pandas and pyarrow are not installed")
has_lightgbm = unittest.skipUnless(all(importlib.util.find_spec(name) for name in (
    "pandas", "lightgbm")), "pandas and LightGBM are not installed")


class FolderCase(Case):
    def setUp(self):
        super().setUp()
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.place = pathlib.Path(made.name)

    def model(self, names=None, **spec):
        """A folder with a stump over features, by default all of the engine."""
        names = names or GemmUniversalFeatureEngine().get_feature_names()
        (self.place / "model_tflops.lgbm").write_text(STUMP.format(
            last=len(names) - 1, names=" ".join(names)))
        (self.place / "feature_spec.json").write_text(json.dumps(
            {"feature_names": names, **spec}))
        return self.place


class Names(Case):
    def test_a_whole_name(self):
        found = parse_kernel_name(NAME)
        self.assertEqual([found[key] for key in ("dtype", "layout", "pipeline", "epilogue",
                                                 "scheduler", "persistent", "pad_m")],
                         ["fp8", "rcr", "compv3", "cshuffle", "intrawave", True, False])
        self.assertEqual([found[f"{prefix}_{axis}"] for prefix in ("tile", "warp", "warp_tile")
                          for axis in "mnk"], [128, 64, 32, 1, 4, 1, 16, 16, 128])
        self.assertEqual(parse_kernel_name(f"gemm_fp8_rcr_{TAIL}"), found)

    def test_widths_of_vectors(self):
        plain = parse_kernel_name(NAME)
        for end, widths in (("", (0, 0, 0)), ("_vec4_4_8", (4, 4, 8)), ("_vec16_2_80", (16, 2, 80)),
                            ("_vec4_4_8_preshuffle", (4, 4, 8)), ("_vecnative", (0, 0, 0))):
            found = parse_kernel_name(NAME + end)
            self.assertEqual(found, {**plain, **dict(zip(("vec_a", "vec_b", "vec_c"), widths))})

    def test_what_is_no_name(self):
        for name in ("", "not_a_kernel_name", NAME + "_vec4_4", NAME + "_vec4_4_8x",
                     NAME.replace("rcr", "rcc")):
            self.assertEqual(parse_kernel_name(name), {}, name)
        self.assertEqual(parse_kernel_name("gemm_universal_fp8_rcr_compv3"),
                         {"dtype": "fp8", "layout": "rcr", "pipeline": "compv3"})

    def test_layouts_of_problems(self):
        words = {"layout_a": "RowMajor", "layout_b": "COLUMNMAJOR", "layout_c": "rowmajor"}
        self.assertEqual(data_pipeline._layout_from_problem(words), "rcr")
        self.assertEqual(data_pipeline._layout_from_problem({}), "???")


class Hardware(Case):
    def profile(self, text):
        with mock.patch.object(subprocess, "run") as ran:
            ran.return_value.stdout = text
            return data_pipeline.get_hardware_profile()

    def test_what_rocminfo_says(self):
        text = ("Agent 1\n  Name:  a CPU\n  Device Type:  CPU\nAgent 2\n  Name:  gfx950\n  Device "
                "Type:  GPU\n  Compute Unit:  256\n  Wavefront Size:  64(0x40)\n  Name:  other\n")
        self.assertEqual(self.profile(text), {"gfx_name": "gfx950", "num_cus": 256,
                                              "wavefront_size": 64, "lds_capacity": 163840})
        for name, size in (("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", 65536),
                           ("amdgcn-amd-amdhsa--gfx1250", 327680), ("not-a-target", None)):
            found = self.profile(f"  Device Type:  GPU\n  Name:  {name}\n")
            self.assertEqual(found.get("lds_capacity"), size)
        with mock.patch.object(subprocess, "run", side_effect=FileNotFoundError):
            self.assertEqual(data_pipeline.get_hardware_profile(), {})

    def test_numbers_are_not_taken_for_another_target(self):
        here = {"gfx_name": "amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-"}
        data_pipeline.check_capture_hw_arch(here, "gfx950:xnack-")
        data_pipeline.check_capture_hw_arch({}, "gfx1250")
        with self.assertRaisesRegex(SystemExit, "gfx1250"):
            data_pipeline.check_capture_hw_arch(here, "gfx1250")

    def test_profiles_of_the_originals_machines(self):
        sizes = {arch: row["hw_lds_capacity"] for arch, row in from_csv.HW_PROFILES.items()}
        self.assertEqual(sizes, {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840,
                                 "gfx1250": 327680})
        self.assertEqual(from_csv.HW_PROFILES["gfx1250"]["hw_wavefront_size"], 32)

    def test_an_engine_says_what_it_was_made_with(self):
        engine = GemmUniversalFeatureEngine(lds_capacity=163840)
        self.assertEqual(len(engine.hardware_config), 11)
        self.assertEqual(GemmUniversalFeatureEngine(**engine.hardware_config).hardware_config,
                         engine.hardware_config)
        engine._hw["more"] = 1
        with self.assertRaisesRegex(TypeError, "holds 'more', which its __init__ does not accept"):
            engine.hardware_config

        class Hidden(GemmUniversalFeatureEngine):
            def __init__(self, **given):
                super().__init__(**given)

        with self.assertRaisesRegex(TypeError, "cannot be resolved from the signature"):
            Hidden().hardware_config


class Widths(Case):
    def widths(self, problem=None, kernel=None):
        engine = GemmUniversalVecFeatureEngine()
        made = {**PROBLEM, **(problem or {})}, {**KERNEL, **(kernel or {})}
        row = engine.extract(*made)
        numpy.testing.assert_array_equal(engine.extract_batch([{**made[1], **made[0]}])[0], row)
        return row[-6:].tolist()

    def test_widths_that_a_problem_allows(self):
        for layout, sizes, wanted in (("rcr", (393216, 256, 257), (1, 1, 8)),
                                      ("rrr", (196608, 641, 384), (8, 1, 1)),
                                      ("crr", (316, 256, 3072), (4, 8, 8))):
            self.assertEqual(gemm_problem_vector_sizes(*sizes, layout, "bf16", "bf16", "bf16"),
                             wanted)
        self.assertEqual(gemm_problem_vector_sizes(64, 64, 64, "rcr", "fp8", "fp8", "fp16"),
                         (16, 16, 8))

    def test_widths_that_a_kernel_takes(self):
        self.assertEqual([_native_ab_vector_size(size, 64, 2, 64, 256) for size in (2, 4)], [1, 2])
        shape = dict(tile=(256, 256, 64), waves=(2, 2, 1), warp_tile=(32, 32, 16))
        for arch, dtype, wanted in (("gfx90a", "bf16", 4), ("gfx950", "fp64", 1),
                                    ("gfx1100", "fp16", 1), ("gfx1201", "fp16", 8),
                                    ("gfx1250:xnack-", "fp32", 8)):
            stores = [gemm_native_vector_sizes(
                dtype_a=dtype, dtype_b=dtype, dtype_c=dtype, layout=layout, gfx_arch=arch,
                epilogue="default", **shape)[2] for layout in ("rcr", "rcc")]
            self.assertEqual(stores, [1, wanted], arch)

    def test_shares(self):
        self.assertEqual(self.widths(), [0, 0, 0, 1, 1, 0.125])
        self.assertEqual(self.widths(kernel={"epilogue": "cshuffle"}), [0, 0, 0, 1, 1, 1])
        fixed = {"vec_a": 4, "vec_b": "8", "vec_c": 2.0}
        self.assertEqual(self.widths(kernel=fixed), [4, 8, 2, 0.5, 1, 0.25])
        self.assertEqual(self.widths({"k": 4}, fixed)[3:5], [1, 2])
        small = {"tile_m": 32, "tile_n": 32, "tile_k": 16}
        self.assertEqual([self.widths({"arch": arch}, small)[3] for arch in ("gfx950", "gfx1250")],
                         [0.125, 0.5])

    def test_what_is_missing_or_wrong(self):
        for problem, kernel, error, sentence in (
                ({"k": 0}, {}, ValueError, "must be >= 1"),
                ({"layout": "zzz"}, {}, ValueError, "layout must be one of"),
                ({"arch": "gfx12345"}, {}, ValueError, "architecture"),
                ({}, {"epilogue": "cshufle"}, ValueError, "epilogue must be one of"),
                ({}, {"vec_a": None}, ValueError, "native|null"),
                ({}, {"vec_b": -1}, ValueError, ">= 0"),
                ({"arch": None}, {}, KeyError, "'arch' is required to compute vector-width"),
                ({}, {"warp_tile_n": None}, KeyError, "warp_tile_n")):
            with self.assertRaisesRegex(error, sentence):
                GemmUniversalVecFeatureEngine().extract({**PROBLEM, **problem},
                                                        {**KERNEL, **kernel})
        less = {key: value for key, value in KERNEL.items() if key != "vec_c"}
        with self.assertRaisesRegex(KeyError, "absent from both"):
            GemmUniversalVecFeatureEngine().extract(PROBLEM, less)
        with self.assertRaisesRegex(KeyError, "needs the fixed vector widths"):
            GemmUniversalVecFeatureEngine().extract_batch([{**PROBLEM, **less}])

    def test_the_shipped_pool_has_native_widths(self):
        row = ml_heuristic_sweep.spec_to_feature_dict(ml_heuristic_sweep.KERNEL_POOL[0], "bf16",
                                                      "rcr", "gfx942")
        self.assertEqual((row["vec_a"], row["arch"], row["dtype"]), (0, "gfx942", "bf16"))
        self.assertEqual(row["warp_tile_m"], ml_heuristic_sweep.KERNEL_POOL[0].warp_m)
        self.assertEqual(len(GemmUniversalVecFeatureEngine().extract(PROBLEM, row)), 78)


class Folders(FolderCase):
    def test_the_engine_is_the_one_that_the_folder_names(self):
        for spec, name in (({}, "GemmUniversalFeatureEngine"),
                           ({"op_type": "grouped_conv"}, "GroupedConvFeatureEngine"),
                           ({"op_type": "gemm_universal_vec"}, "GemmUniversalVecFeatureEngine"),
                           ({"op_type": "more"}, "GemmUniversalFeatureEngine"),
                           ({"op_type": "grouped_conv_bwd_data", "feature_names": ["K_per_C"]},
                            "GroupedConvLatestFeatureEngine")):
            self.assertEqual(type(_engine_for_spec(spec)).__name__, name)
        with self.assertRaisesRegex(ValueError, "no feature engine 'Mine'"):
            _engine_for_spec({"feature_engine": "Mine"})
        engine = _engine_for_spec({"hardware": {"lds_capacity": 163840, "more": 1}})
        self.assertEqual(engine.hardware_config["lds_capacity"], 163840)

    def test_columns_are_taken_by_name(self):
        names = GemmUniversalFeatureEngine().get_feature_names()
        chosen = list(reversed(names[:5]))
        predictor = Predictor(self.model(chosen))
        numpy.testing.assert_array_equal(predictor.select_features(
            numpy.arange(72.0)[None]), [[4, 3, 2, 1, 0]])
        self.assertIsNone(Predictor(self.model())._feature_indices)
        with self.assertRaisesRegex(ValueError, "'mine', which .* cannot supply"):
            Predictor(self.model(["M", "mine"]))

    def test_models_of_another_encoding_are_refused(self):
        names = GemmUniversalVecFeatureEngine().get_feature_names()
        spec = {"feature_engine": "GemmUniversalVecFeatureEngine"}
        self.assertEqual(Predictor(self.model(names, feature_encoding_version=1, **spec)
                                   ).predict_tflops(PROBLEM, KERNEL), 2.0)
        for version in ({}, {"feature_encoding_version": 0}):
            with self.assertRaisesRegex(ValueError, "feature encoding version: it was trained at "
                                        "version 0"):
                Predictor(self.model(names, **spec, **version))

    def test_a_search_filters_by_the_models_machine(self):
        large = {**KERNEL, "tile_m": 256, "tile_n": 256, "tile_k": 256}
        self.assertFalse(GemmUniversalFeatureEngine().validate_config(large))
        predictor = Predictor(self.model(hardware={"lds_capacity": 163840}))
        self.assertTrue(SurrogateSearch(predictor)._fe.validate_config(large))

        class Empty(GemmUniversalFeatureEngine):
            def __bool__(self):
                return False

        engine = Empty()
        self.assertIs(SurrogateSearch(predictor, feature_engine=engine)._fe, engine)
        self.assertEqual(SurrogateSearch(predictor).search({**PROBLEM}, budget=0), [])


class Choosing(FolderCase):
    POOL = [integration.kernel_config_to_feature_dict(name) for name in (
        NAME, NAME.replace("compv3", "compv4").replace("128x64x32", "256x64x32"))]

    def test_words_of_the_dispatcher(self):
        config = integration.feature_dict_to_dispatcher_config(self.POOL[0])
        self.assertEqual([config[key] for key in ("tile_m", "wave_n", "warp_k", "layout_b",
                                                  "dtype_c", "gfx_arch")],
                         [128, 4, 128, "col", "fp16", "gfx950"])
        spec = integration.feature_dict_to_ml_spec(self.POOL[0], 12.5)
        self.assertEqual((spec.wave_n, spec.warp_k, spec.persistent, spec.predicted_tflops),
                         (4, 128, True, 12.5))
        again = integration.ml_spec_to_dispatcher_config(spec)
        self.assertEqual({key: value for key, value in again.items() if "pad" not in key},
                         {key: value for key, value in config.items() if "pad" not in key})

    def test_fixed_widths_are_refused(self):
        for convert in (integration.feature_dict_to_ml_spec,
                        integration.feature_dict_to_dispatcher_config):
            with self.assertRaisesRegex(ValueError, r"fixes the widths \(4, 0, 8\).*cannot "
                                        "represent"):
                convert({**self.POOL[0], "vec_a": "4", "vec_b": math.nan, "vec_c": 8.0})
            convert({**self.POOL[0], "vec_a": None, "vec_b": "", "vec_c": "0.0"})

    def test_the_best_of_a_pool(self):
        names = ["tile_m", *(name for name in GemmUniversalFeatureEngine().get_feature_names()
                             if name != "tile_m")]
        text = self.model(names, arch="gfx950") / "model_tflops.lgbm"
        text.write_text(text.read_text().replace("threshold=100", "threshold=200"))
        best = integration.create_ml_heuristic(self.place, kernel_pool=self.POOL)(64, 64, 64)
        self.assertEqual((best.tile_m, best.predicted_tflops), (256, 2.0))
        ranked = integration.create_ranked_heuristic(self.place, kernel_pool=self.POOL, top_k=2)
        self.assertEqual([each.tile_m for each in ranked(8, 8, 8)], [256, 128])
        for pool, arch, sentence in (([], None, "No kernel configs"),
                                     (self.POOL, "gfx1250", "disagrees with the model"),
                                     ([{**self.POOL[0], "m": 1}], None, "problem keys"),
                                     ([{**self.POOL[0], "arch": "gfx942"}], None,
                                      "kernel_pool entries carry arch gfx942")):
            with self.assertRaisesRegex(ValueError, sentence):
                integration.create_ml_heuristic(self.place, arch=arch, kernel_pool=pool)

    def test_pools_of_programs(self):
        self.assertEqual(integration.load_kernel_pool_from_binaries(self.place), [])
        (self.place / f"benchmark_{NAME}").write_text("")
        (self.place / "benchmark_gemm_universal_none").write_text("")
        self.assertEqual(integration.load_kernel_pool_from_binaries(self.place), [self.POOL[0]])


@has_tables
class Tables(FolderCase):
    def block(self, m, tflops=1.5):
        return json.dumps({"name": NAME, "problem": {"m": m, "n": 16, "k": 32, "dtype_a": "fp8"},
                           "perf_result": {"latency(ms)": 0.25, "tflops(TFlops)": tflops,
                                           "bandwidth(GB/s)": 2}}, indent=1)

    def log(self):
        sizes = self.random.integers(1, 5000, 2).tolist()
        (self.place / "run.log").write_text("\n".join([
            "noise", "Shape 1: M=8 N=16 K=32 dtype=fp8 layout=rcr", self.block(sizes[0]),
            "{ this is not valid json }", '{"name": "is not closed",', self.block(sizes[1], 0)]))
        return sizes

    def test_a_block_that_is_malformed_is_skipped_and_counted(self):
        sizes = self.log()
        table = data_pipeline.parse_streaming_log(self.place / "run.log", "gfx942", run_id="r")
        self.assertEqual(list(table.columns), data_pipeline.CANONICAL_COLUMNS)
        self.assertEqual(table["m"].tolist(), sizes, f"seed {SEED}")
        self.assertEqual(table["is_valid"].tolist(), [True, False])
        self.assertEqual((set(table["layout"]), set(table["arch"]), table["tile_n"][0],
                          table.attrs["skipped"]), ({"rcr"}, {"gfx942"}, 64, 2))
        self.assertEqual(len(data_pipeline.parse_streaming_log(__file__)), 0)

    def test_the_script_writes_the_originals_columns(self):
        self.log()
        place = self.place / "data/out.parquet"
        _, told = quietly(data_pipeline.main, [str(self.place / "run.log"), "-o", str(place),
                                               "--arch", "gfx950", "--capture_hw"])
        self.assertIn("2 measurements in", told)
        self.assertIn("2 blocks skipped", told)
        table = data_pipeline.build_training_dataset(place.parent, "gemm_universal", "fp8")
        self.assertEqual((len(table), table["hw_lds_capacity"][0]), (2, 163840))
        for wrong in (dict(dtype="bf16"), dict(op_type="grouped_conv")):
            with self.assertRaises(FileNotFoundError):
                data_pipeline.build_training_dataset(place.parent, **wrong)

    def test_a_folder_of_several_operations(self):
        import pandas
        gemm = pandas.DataFrame({"kernel_name": ["g", "h"], "measured_tflops": [1.0, 2.0], "m": 8})
        conv = pandas.DataFrame({"kernel_name": ["c"], "tflops": [3.0], "K": 4})
        for place, table in (("a", gemm.assign(op_type="gemm_universal", run_id=7)),
                             ("b", gemm.assign(run_id="x9")),  # says no operation
                             ("c", conv.assign(run_id=None)),
                             ("d", conv.assign(op_type="grouped_conv", run_id=12))):
            table.to_csv(self.place / f"{place}.csv", index=False)
        found = data_pipeline.build_training_dataset(self.place, "grouped_conv")
        self.assertEqual((found["tflops"].tolist(), found["K"].tolist()), ([3, 3], [4, 4]))
        self.assertNotIn("measured_tflops", found.columns)
        found = data_pipeline.build_training_dataset(self.place, "gemm_universal")
        self.assertEqual(found["measured_tflops"].tolist(), [1, 2, 1, 2])
        self.assertEqual(found["run_id"].tolist(), ["7", "7", "x9", "x9"])
        data_pipeline.save_parquet(found, self.place / "all.parquet")
        with self.assertRaises(FileNotFoundError):
            data_pipeline.build_training_dataset(self.place, "gemm_streamk")

    def test_tables_of_sweeps(self):
        file = self.place / "in.csv"
        file.write_text("kernel,problem_idx,M,N,K,latency_ms,tflops,verified\n"
                        f"{NAME},0,512,1024,64,0.5,4.25,True\nother,0,1,1,1,1,1,True\n")
        table = from_csv.convert_csv_to_parquet(file, self.place / "t.parquet", arch="gfx1250")
        self.assertEqual((len(table), table["hw_wavefront_size"][0], table["m"][0]), (1, 32, 512))
        table = from_csv.convert_csv_to_parquet(file, self.place / "t.parquet", arch="gfx1")
        self.assertFalse([name for name in table.columns if name.startswith("hw_")])
        file.write_text("M,N\n1,2\n")
        with self.assertRaisesRegex(tessera.Error, "has no column 'kernel'"):
            from_csv.convert_csv_to_parquet(file, self.place / "t.parquet")


@has_lightgbm
class Training(FolderCase):
    def table(self, rows=300):
        import pandas
        made = []
        for _ in range(rows):
            m, n, k = (int(each) for each in self.random.choice([64, 128, 256, 512], 3))
            tile = int(self.random.choice([32, 64, 128]))
            made.append({**parse_kernel_name(NAME), "m": m, "n": n, "k": k, "tile_m": tile,
                         "kernel_name": f"{NAME}_{tile}", "op_type": "gemm_universal",
                         "measured_tflops": m * n / (1 + abs(tile - 64)) * self.random.uniform(
                             0.9, 1.1), "latency_ms": 1.0, "bandwidth_gb_s": 2.0,
                         "is_valid": True, "split_k": 1, "hw_lds_capacity": 163840})
        return pandas.DataFrame(made)

    def test_shares_of_the_best(self):
        import pandas
        table = pandas.DataFrame({"m": [1, 1, 2, 2, 3], "n": 1, "k": 1,
                                  "measured_tflops": [100, 200, 50, 40, 0],
                                  "pred_tflops": [5, 4, 1, 1, 1]})
        for operation in ("gemm_universal", "gemm_universal_vec"):
            found = train.compute_tflops_efficiency(table, operation, "pred_tflops")
            self.assertEqual(found["efficiency"].tolist(), [0.5, 1.0])
            self.assertEqual(train.compute_group_keys(table, operation).tolist(),
                             ["1_1_1", "1_1_1", "2_1_1", "2_1_1", "3_1_1"])

    def test_a_machine_is_read_from_the_data(self):
        table = self.table(3)
        self.assertEqual(train.build_hw_kwargs(table, "gemm_universal"), {"lds_capacity": 163840})
        for values, sentence in (([1, 2, 2], "2 distinct values"), ([0] * 3, "non-positive"),
                                 (["x"] * 3, "is 'x', which is no number")):
            with self.assertRaisesRegex(ValueError, sentence):
                train.build_hw_kwargs(table.assign(hw_num_cus=values), "gemm_universal")
        train.check_arch_matches_data(table.assign(arch="gfx950:xnack-"), "gfx950")
        with self.assertRaisesRegex(ValueError, "but the data carries gfx950"):
            train.check_arch_matches_data(table.assign(arch="gfx950"), "gfx942")

    def test_what_a_model_may_be_continued_by(self):
        engine = GemmUniversalFeatureEngine()
        spec = train.build_feature_spec("gemm_universal", engine, "fp8", "gfx950", ["tflops"], [],
                                        {})
        file = self.place / "feature_spec.json"
        for change, sentence in (
                ({}, ""), ({"feature_names": spec["feature_names"][:-1]}, "Feature schema mism"),
                ({"categorical_features": ["layout"]}, "Categorical feature mismatch"),
                ({"feature_encoding_version": 9}, "encoding version 9"),
                ({"hardware": {"lds_capacity": 1}}, "Hardware constant mismatch: lds_capacity")):
            file.write_text(json.dumps({**spec, **change}))
            if sentence:
                with self.assertRaisesRegex(ValueError, sentence):
                    train.check_feature_compatibility(self.place, engine)
            else:
                train.check_feature_compatibility(self.place, engine)
        with self.assertRaisesRegex(FileNotFoundError, "feature_spec.json"):
            train.check_feature_compatibility(self.place / "none", engine)
        self.assertIsNone(train.load_warm_start_model(self.place, "tflops"))

    def test_a_folder_is_trained_judged_continued_and_asked(self):
        data = self.place / "data"
        data.mkdir()
        self.table().to_csv(data / "t.csv", index=False)
        common = ["--data_dir", str(data), "--dtype", "fp8", "--arch", "gfx950", "--n_splits", "2"]
        quietly(train.main, [*common, "--out_dir", str(self.place / "m"), "--n_estimators", "60",
                             "--param", "learning_rate=0.2"])
        spec = json.loads((self.place / "m/feature_spec.json").read_text())
        self.assertEqual((spec["feature_engine"], spec["arch"], spec["log_targets"],
                          spec["hardware"]["lds_capacity"]),
                         ("GemmUniversalFeatureEngine", "gfx950", ["tflops"], 163840))
        predictor = Predictor(self.place / "m")
        rows = [{**parse_kernel_name(NAME), "tile_m": tile, "kernel_name": str(tile)}
                for tile in (32, 64, 128)]
        self.assertEqual(predictor.select_best({"m": 256, "n": 256, "k": 64}, rows), "64")
        report = evaluate.evaluate_model(predictor, data_pipeline.build_training_dataset(data))
        self.assertGreater(report["global_metrics"]["r2"], 0.9, f"seed {SEED}")
        self.assertGreater(report["global_metrics"]["efficiency_mean"], 0.9)
        code, told = quietly(evaluate.main, ["--model_dir", str(self.place / "m"), "--data_dir",
                                             str(data), "-o", str(self.place / "r.json")])
        self.assertEqual(code, 0)
        self.assertRegex(told, r"R2 0\.9\d+  RMSE \S+ TFLOPS  of 300 rows")
        quietly(train.main, [*common, "--out_dir", str(self.place / "m2"), "--warm_start",
                             str(self.place / "m"), "--warm_start_n_estimators", "5"])
        whole = json.loads((self.place / "m2/train_manifest.json").read_text())
        self.assertEqual((whole["prev_n_estimators"], whole["new_n_estimators"]), (60, 5))
        with self.assertRaises(SystemExit):
            quietly(train.build_arg_parser().parse_args, [*common, "--operation", "sideways"])

    def test_judging_by_hand(self):
        import pandas

        class Stub:
            _log_targets = ("tflops",)

            def _load_model(self, target):
                return self

            def predict(self, rows):
                return numpy.log1p([100.0, 50, 25, 100])

            def select_features(self, rows):
                return rows

            feature_engine = GemmUniversalFeatureEngine()

        table = pandas.DataFrame({**{axis: [128, 128, 256, 256] for axis in "mnk"},
                                  "measured_tflops": [100.0, 50, 100, 25], "pipeline": "compv3",
                                  "is_valid": True})
        found = evaluate.evaluate_model(Stub(), table)
        whole = found["global_metrics"]
        self.assertEqual((whole["num_shapes"], whole["ndcg_at_1"], whole["efficiency_mean"]),
                         (2, 0.5, 0.625))
        self.assertEqual(found["shape_family_metrics"]["medium_m"]["count"], 1)
        self.assertEqual(found["pipeline_metrics"]["compv3"]["mean"], 0.625)
        self.assertEqual([evaluate.classify_shape_family(m, 1, 1) for m in (16, 32, 256, 4096)],
                         ["tiny_m", "small_m", "medium_m", "large_m"])
        self.assertEqual([evaluate.classify_k_regime(k) for k in (256, 1024, 4096)],
                         ["shallow_k", "medium_k", "deep_k"])


class Operations(Case):
    def test_engines_of_operations(self):
        for operation, kind in feature_engine.OPERATION_ENGINES.items():
            self.assertEqual(type(train.get_feature_engine(operation)).__name__, kind)
        self.assertEqual(train.base_operation("gemm_universal_vec"), "gemm_universal")
        with self.assertRaisesRegex(ValueError, "no features of 'fmha'"):
            train.get_feature_engine("fmha")
        with self.assertRaises(SystemExit):
            quietly(evaluate.build_arg_parser().parse_args, ["--model_dir", "m", "--data_dir", "d",
                                                             "--op", "fmha"])


if __name__ == "__main__":
    unittest.main()
