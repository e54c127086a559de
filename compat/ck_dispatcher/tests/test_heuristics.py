"""Features, models and searches as the documents show them: predict, feature_engine, search."""
import gzip
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

import tessera
from support import COMPAT, SEED, Case

import feature_engine
from feature_engine import FeatureEngine, GemmUniversalFeatureEngine
from feature_engine_grouped_conv import (GroupedConvFeatureEngine,
                                         GroupedConvLatestFeatureEngine)
from feature_engine_vec import GemmUniversalVecFeatureEngine
from predict import Predictor
from search import SurrogateSearch
from tessera_ck import forest

MODELS = COMPAT.parents[1] / "models"
PROBLEM = {"M": 100, "N": 256, "K": 64, "dtype": "fp16", "layout": "rrr"}
KERNEL = {"kernel_name": "one", "tile_m": 128, "tile_n": 128, "tile_k": 32, "warp_m": 2,
          "warp_n": 2, "warp_k": 1, "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16,
          "pipeline": "compv4", "scheduler": "intrawave", "epilogue": "cshuffle", "pad_m": True}

# Two trees by hand: one asks M against 50 and a category, the other has a leaf alone.
MODEL = """tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=1
objective=regression
feature_names=M layout

Tree=0
num_leaves=3
num_cat=1
split_feature=0 1
threshold=50 0
decision_type=2 1
left_child=-1 -2
right_child=1 -3
leaf_value=1 2 4
cat_boundaries=0 1
cat_threshold=2
shrinkage=1


Tree=1
num_leaves=1
num_cat=0
leaf_value=0.5
shrinkage=1


end of trees
"""


class Forests(Case):
    def test_values_by_hand(self):
        trees = forest.parse(MODEL)
        rows = [[50, 0], [50.5, 1], [50.5, 0], [60, 40], [60, -1], [60, math.nan], [math.nan, 1]]
        # Category 1 alone goes left (word 0b10). A NaN in M counts as 0, which is at most 50.
        wanted = [1.5, 2.5, 4.5, 4.5, 4.5, 4.5, 1.5]
        numpy.testing.assert_array_equal(trees.predict(rows), wanted)

    def test_missing_values(self):
        # decision_type: 2 * default_left + 4 * missing kind (1 zero, 2 NaN)
        for kind, value, wanted in ((4, 0.0, 2.0), (6, 0.0, 1.0), (8, math.nan, 2.0),
                                    (10, math.nan, 1.0), (8, 0.0, 1.0)):
            text = MODEL.replace("split_feature=0 1", "split_feature=0").replace(
                "threshold=50 0", "threshold=50").replace("decision_type=2 1",
                                                          f"decision_type={kind}").replace(
                "left_child=-1 -2", "left_child=-1").replace("right_child=1 -3",
                                                            "right_child=-2").replace(
                "num_leaves=3", "num_leaves=2").replace("leaf_value=1 2 4", "leaf_value=1 2")
            got = forest.parse(text).predict([[value, 0]])[0] - 0.5
            self.assertEqual(got, wanted, f"decision_type={kind}, {value}")

    def test_a_file_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "tree\nnothing", MODEL.replace("split_feature=0 1",
                                                            "split_feature=0 7")):
                file = pathlib.Path(folder) / "model.lgbm"
                file.write_text(text)
                with self.assertRaisesRegex(tessera.Error, "is no text model of LightGBM"):
                    forest.read(file)

    def test_a_shipped_model_is_read(self):
        trees = forest.read(MODELS / "gemm_avx512_fp32/model.txt.gz")
        rows = self.random.uniform(0, 100, (5, len(trees.feature_names)))
        self.assertTrue(numpy.isfinite(trees.predict(rows)).all(), f"seed {SEED}")
        with self.assertRaisesRegex(tessera.Error, "features, and rows have 3"):
            trees.predict([[1, 2, 3]])


    def test_compares_alone_give_the_same_leaves(self):
        trees = forest.read(MODELS / "gemm_avx512_fp32/model.txt.gz")
        rows = 10 ** self.random.uniform(-3, 5, (40, len(trees.feature_names)))
        rows[:, ::7] = 0
        reached = set()
        for tree in trees.trees[:30]:
            self.assertFalse((tree.decision & 5).any())
            leaves = forest._leaves(tree, rows)
            numpy.testing.assert_array_equal(forest._compared_leaves(tree, rows), leaves,
                                             f"seed {SEED}")
            reached.update(leaves)
        self.assertGreater(len(reached), 60, f"seed {SEED}")


class Features(Case):
    def test_counts_are_documented(self):
        for kind, count in ((feature_engine.GemmDocumentedFeatureEngine, 55),
                            (GemmUniversalFeatureEngine, 72),
                            (GemmUniversalVecFeatureEngine, 78), (GroupedConvFeatureEngine, 97),
                            (GroupedConvLatestFeatureEngine, 113)):
            names = kind().get_feature_names()
            self.assertEqual((len(set(names)), len(names)), (count, count))
            self.assertEqual(feature_engine.feature_engine_class(kind.__name__), kind)
        with self.assertRaisesRegex(ValueError, "no feature engine 'Mine'"):
            feature_engine.feature_engine_class("Mine")

    def test_numbers_by_hand(self):
        found = GemmUniversalFeatureEngine().compute(PROBLEM, KERNEL)
        wanted = {"M": 100, "log2_N": 8, "aspect_ratio_mk": 100 / 64, "layout": 1, "split_k": 1,
                  "arithmetic_intensity": 2 * 100 * 256 * 64 / (
                      2 * (100 * 64 + 64 * 256 + 100 * 256)),
                  "pipeline": 1, "scheduler": 0, "epilogue": 1, "pad_m": 1, "pad_n": 0,
                  "num_warps": 4, "tile_volume": 128 * 128 * 32, "lds_usage_estimate": 16384,
                  "lds_usage_ratio": 0.5, "num_tiles_m": 1, "num_tiles_n": 2, "num_tiles_k": 2,
                  "total_output_tiles": 2, "tile_eff_m": 100 / 128, "tile_eff_n": 1,
                  "overall_tile_efficiency": 100 / 128, "cu_utilization": 2 / 256,
                  "problem_smaller_than_tile_m": 1, "any_dim_too_small": 1, "needs_padding_m": 1,
                  "has_padding_when_needed_m": 1, "missing_any_required_padding": 0,
                  "hw_total_simds": 1024, "hw_num_xcd": 8}
        for name, value in wanted.items():
            self.assertAlmostEqual(found[name], value, msg=name)

    def test_a_convolution_by_hand(self):
        problem = {"N": 2, "C": 64, "K": 128, "G": 2, "Hi": 28, "Wi": 28, "Y": 3, "X": 3,
                   "pad_h": 1, "pad_w": 1, "stride_h": 2, "dtype": "bf16"}
        kernel = {"gemm_m_per_block": 64, "gemm_n_per_block": 128, "gemm_k_per_block": 32,
                  "block_size": 256, "pipeline": "mem"}
        found = GroupedConvLatestFeatureEngine(num_cus=304).compute(problem, kernel)
        wanted = {"Ho": 14, "Wo": 28, "channels_per_group": 32, "is_depthwise": 0,
                  "gemm_m_output": 2 * 14 * 28, "gemm_n_output": 128, "gemm_k_output": 32 * 9,
                  "num_tiles_m": 13, "num_tiles_n": 1, "num_tiles_k": 9, "is_mem": 1,
                  "cu_utilization": 13 / 304, "is_subwave": 1, "wave_quant_efficiency": 13 / 304,
                  "log_k_per_active_cu": math.log(9 / 13), "is_3x3_conv": 1, "num_warps": 64,
                  "is_mem_x_log_num_tiles_m": math.log(13), "lds_usage_estimate": 192 * 32 * 2}
        for name, value in wanted.items():
            self.assertAlmostEqual(found[name], value, msg=name)

    def test_windows_of_three_dimensions(self):
        problem = {"N": 1, "C": 8, "K": 8, "Di": 5, "Hi": 9, "Wi": 9, "Z": 3, "Y": 3, "X": 3}
        kernel = {"gemm_m_per_block": 64, "gemm_n_per_block": 64, "block_size": 16,
                  "pipeline": "compv3", "wave_mode": "interwave"}
        engine = GroupedConvFeatureEngine()
        found = engine.compute(problem, kernel)
        for name, value in {"filter_area": 27, "is_3x3_conv": 1, "is_1x1_conv": 0,
                            "gemm_k_per_block": 16, "is_intrawave": 0,
                            "ratio_gemm_m_to_tile_m": 3 * 7 * 7 / 64}.items():
            self.assertEqual(found[name], value, name)
        flat = engine.compute({**problem, "Z": 1}, kernel)
        self.assertEqual((flat["filter_area"], flat["is_3x3_conv"]), (9, 0))

    def test_a_batch_is_its_rows(self):
        engine = GemmUniversalFeatureEngine()
        rows = [{**PROBLEM, **KERNEL, "M": int(m)} for m in self.random.integers(1, 5000, 9)]
        numpy.testing.assert_array_equal(engine.extract_batch(rows), numpy.stack(
            [engine.extract(row, row) for row in rows]))

    def test_kernels_at_once_are_kernels_one_by_one(self):
        class Own(GemmUniversalFeatureEngine):
            def compute(self, problem, kernel):
                return {**super().compute(problem, kernel), "M": 7.0}

        draw = self.random.choice
        kernels = [{**KERNEL, "tile_m": int(draw([32, 64, 192])), "tile_n": int(draw([32, 256])),
                    "pad_m": bool(draw([0, 1])), "pipeline": str(draw(["mem", "compv4"])),
                    "warp_m": int(draw([1, 4]))} for _ in range(12)]
        problem = {**PROBLEM, "M": int(self.random.integers(1, 300)), "K": 192}
        for engine in (GemmUniversalFeatureEngine(), Own(), GroupedConvFeatureEngine()):
            if isinstance(engine, GroupedConvFeatureEngine):
                problem = {"N": 2, "C": 8, "K": 8, "Hi": 9, "Wi": 9, "Y": 3, "X": 3}
                kernels = [{"gemm_m_per_block": each["tile_m"], "gemm_n_per_block": 64,
                            "block_size": 64} for each in kernels]
            one_by_one = numpy.stack([engine.extract(problem, kernel) for kernel in kernels])
            numpy.testing.assert_array_equal(engine.extract_kernels(problem, kernels), one_by_one,
                                             f"seed {SEED}")
            if isinstance(engine, Own):
                self.assertEqual(set(one_by_one[:, 0]), {7.0})

    def test_what_is_missing_is_named(self):
        engine = GemmUniversalFeatureEngine()
        with self.assertRaisesRegex(tessera.Error, "'no_such' cannot be computed"):
            engine.extract(PROBLEM, KERNEL, ["M", "no_such"])
        with self.assertRaisesRegex(tessera.Error, "know no pipeline 'wavelet'"):
            engine.extract(PROBLEM, {**KERNEL, "pipeline": "wavelet"})
        with self.assertRaisesRegex(tessera.Error, "a problem has no 'N'"):
            engine.extract({"M": 1}, KERNEL)

    def test_spaces_and_constraints(self):
        engine = GemmUniversalFeatureEngine()
        self.assertTrue(engine.validate_config(KERNEL))
        self.assertFalse(engine.validate_config({**KERNEL, "scheduler": "interwave"}))
        self.assertFalse(engine.validate_config({**KERNEL, "tile_k": 256}))
        self.assertFalse(engine.validate_config({**KERNEL, "tile_m": 999}))
        self.assertIs(engine.validate_config({"tile_m": 128, "pipeline": "compv3"}), False)
        near = engine.project_to_valid({**KERNEL, "tile_m": 120, "pipeline": "none"})
        self.assertEqual((near["tile_m"], near["pipeline"]), (128, "compv3"))

    def test_an_operation_of_ones_own(self):
        class Mine(FeatureEngine):
            def get_feature_names(self): return ["M"]
            def get_categorical_features(self): return []
            def get_parameter_space(self): return {"tile": [1, 2]}
            def get_constraints(self): return [lambda config: config["tile"] == 2]
            def compute(self, problem, kernel): return {"M": float(problem["M"])}

        mine = Mine(GemmUniversalFeatureEngine().hardware)
        self.assertEqual(mine.extract(PROBLEM, {}).tolist(), [100.0])
        self.assertTrue(mine.validate_config({"tile": 2}))
        with self.assertRaisesRegex(tessera.Error, "no features of 'fmha'"):
            feature_engine.engine_for("fmha")


class Foreign(Case):
    """Folders of the original."""

    def folder(self, text=MODEL, spec=None, name="model_tflops.lgbm"):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        place = pathlib.Path(made.name)
        data = text.encode()
        (place / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        (place / "feature_spec.json").write_text(json.dumps({
            "op_type": "gemm_universal", "dtype": "fp8", "arch": "gfx950",
            "feature_names": ["M", "layout"], "log_targets": [], **(spec or {})}))
        return place

    def test_plain_and_packed_files(self):
        for name in ("model_tflops.lgbm", "model_tflops.lgbm.gz"):
            place = self.folder(name=name)
            model = Predictor(place)
            self.assertEqual(model.predict_tflops(PROBLEM, KERNEL), 2.5)
            self.assertEqual(model.predict_tflops({**PROBLEM, "layout": "rcr"}, KERNEL), 4.5)
            self.assertEqual((place / "model_tflops.lgbm").read_text(), MODEL)

    def test_logarithms_are_undone_for_every_quantity(self):
        place = self.folder(spec={"log_targets": ["tflops"]})
        (place / "model_latency.lgbm").write_text(MODEL)
        model = Predictor(place)
        self.assertAlmostEqual(model.predict_tflops(PROBLEM, KERNEL), math.expm1(2.5))
        self.assertEqual(model.predict_all(PROBLEM, KERNEL),
                         {"tflops": model.predict_tflops(PROBLEM, KERNEL), "latency_ms": 2.5})
        with self.assertRaisesRegex(FileNotFoundError, "has no model of bandwidth"):
            model.predict_bandwidth(PROBLEM, KERNEL)

    def test_a_part_of_the_features(self):
        # The model has M and layout; the list of the folder has more.
        model = Predictor(self.folder(spec={"feature_names": ["K", "layout", "hw_magic", "M"],
                                            "feature_indices": [3, 1]}))
        self.assertEqual(model.predict_tflops(PROBLEM, KERNEL), 2.5)
        model = Predictor(self.folder(spec={"feature_names": ["K", "layout", "M"],
                                            "feature_indices": [3, 1]}))
        with self.assertRaisesRegex(tessera.Error, "must be places in its 3 feature_names"):
            model.predict_tflops(PROBLEM, KERNEL)

    def test_the_first_missing_feature_is_named(self):
        with self.assertRaisesRegex(ValueError, "feature 'hw_magic', which GemmUniversalFeature"
                                    "Engine cannot supply"):
            Predictor(self.folder(spec={"feature_names": ["hw_magic", "hw_more"]}))
        model = Predictor(self.folder(spec={"feature_names": ["M"]}))
        with self.assertRaisesRegex(tessera.Error, "has 1 features and the model 2"):
            model.predict_tflops(PROBLEM, KERNEL)

    def test_ranking(self):
        model = Predictor(self.folder(MODEL.replace("feature_names=M layout",
                                                    "feature_names=tile_m layout"),
                                      {"feature_names": ["tile_m", "layout"]}))
        rows = [{**KERNEL, "kernel_name": "small", "tile_m": 32}, KERNEL]
        self.assertEqual(model.rank_kernels(PROBLEM, rows), [("one", 2.5), ("small", 1.5)])
        self.assertEqual(model.select_best(PROBLEM, rows), "one")
        self.assertEqual(model.rank_kernels(PROBLEM, []), [])
        with self.assertRaises(ValueError):
            model.select_best(PROBLEM, [])

    def test_no_model(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(FileNotFoundError):
            Predictor(folder)

    def test_searching(self):
        model = Predictor(self.folder(MODEL.replace("feature_names=M layout",
                                                    "feature_names=tile_m layout"),
                                      {"feature_names": ["tile_m", "layout"]}))
        for strategy in ("random", "de"):
            search = SurrogateSearch(model, strategy=strategy, seed=3)
            found = search.search(PROBLEM, budget=60, top_k=4)
            self.assertEqual(len(found), 4)
            self.assertEqual([tflops for _, tflops in found], [2.5] * 4)
            for config, _ in found:
                self.assertTrue(model.engine.validate_config({**config, "dtype": "fp16"}))
            again = SurrogateSearch(model, strategy=strategy, seed=3)
            self.assertEqual(again.search(PROBLEM, budget=60, top_k=4), found)
        with self.assertRaisesRegex(ValueError, "strategy must be one of random, de"):
            SurrogateSearch(model, strategy="luck").search(PROBLEM)


class Ours(Case):
    """Tessera's own models by the same calls."""

    folder = MODELS / "gemm_avx512_fp32"
    problem = {"M": 512, "N": 512, "K": 512, "dtype": "fp32", "layout": "rcr"}

    def test_predictions_are_the_models_own(self):
        model = tessera.Model.load(str(self.folder))
        line = "gemm m=512 n=512 k=512"
        rows = [{"kernel_name": row["kernel"]} for row in model.rank(line, top=4)]
        found = Predictor(self.folder).rank_kernels(self.problem, rows)
        self.assertEqual([tflops for _, tflops in found],
                         sorted((tflops for _, tflops in found), reverse=True))
        for name, tflops in found:
            seconds = model.predict(line, name)
            self.assertAlmostEqual(tflops, 2 * 512**3 / seconds / 1e12)
            self.assertAlmostEqual(Predictor(self.folder).predict_latency(
                self.problem, {"kernel_name": name}), seconds * 1e3)

    def test_a_convolution(self):
        name = next(MODELS.glob("conv_avx512_forward_*")).name
        problem = {"N": 2, "C": 64, "K": 64, "G": 1, "Hi": 28, "Wi": 28, "Y": 3, "X": 3,
                   "stride_h": 1, "stride_w": 1, "pad_h": 1, "pad_w": 1, "dtype": "fp32"}
        predictor = Predictor(MODELS / name)
        self.assertEqual(predictor.op_type, "grouped_conv_forward")
        model = tessera.Model.load(str(MODELS / name))
        line = "conv direction=forward n=2 c=64 k=64 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1"
        rows = [{"kernel_name": row["kernel"]} for row in model.rank(line, top=3)]
        for kernel, tflops in predictor.rank_kernels(problem, rows):
            wanted = tessera.Problem(line).flops / model.predict(line, kernel) / 1e12
            self.assertAlmostEqual(tflops, wanted)

    def test_searching_ranks_legal_kernels(self):
        found = SurrogateSearch(Predictor(self.folder)).search(self.problem, budget=50, top_k=5)
        self.assertEqual(len(found), 5)
        self.assertEqual([score for _, score in found],
                         sorted((score for _, score in found), reverse=True))
        self.assertEqual(found[0][0]["dtype"], "fp32")

    def run_script(self, name, *words):
        return subprocess.run([sys.executable, str(COMPAT / "heuristics" / name), *words],
                              capture_output=True, text=True)

    def test_the_scripts(self):
        size = ["--m", "128", "--n", "1536", "--k", "7168", "--layout", "rcr"]
        found = self.run_script("predict.py", "--model_dir", str(self.folder), *size)
        self.assertEqual(found.returncode, 0, found.stderr)
        lines = found.stdout.splitlines()
        self.assertEqual(lines[0], f"tessera predict --model {self.folder} gemm m=128 n=1536 "
                         "k=7168 --top 5")
        self.assertEqual(len(lines), 6)
        found = self.run_script("search.py", "--model_dir", str(self.folder), *size,
                                "--strategy", "random", "--budget", "50", "--top_k", "3")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(len(found.stdout.splitlines()), 4)
        missing = self.run_script("predict.py", "--model_dir", "/nowhere/model", *size)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("holds no model", missing.stderr)


if __name__ == "__main__":
    unittest.main()
