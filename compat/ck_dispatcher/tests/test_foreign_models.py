"""Models of gfx950 from measurements in the original's form: converted, trained, judged, asked."""
import json
import pathlib
import shutil
import sys
import unittest

import tessera
from support import COMPAT, SEED
from test_foreign_data import FolderCase, has_lightgbm, has_tables, quietly

import convert_csv_to_parquet as from_csv
import convert_json_to_parquet as from_json
import evaluate
import predict
import train
from feature_engine_grouped_conv import GroupedConvDocumentedFeatureEngine
from frames import read_table

sys.path[:0] = [str(COMPAT / "tile_engine/ops/grouped_conv"), str(COMPAT / "heuristics/validation")]
import validate_ml_heuristic  # noqa: E402
import validate_ml_vs_oracle  # noqa: E402

# Tiles that no single wave divides.
TILES = ("128x128x64", "16x64x64", "64x256x64", "256x16x32")
HEAD = "kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms,tflops"
FEW = ["--n_estimators", "40", "--n_splits", "2", "--param", "n_jobs=1", "--param",
       "learning_rate=0.2", "--param", "min_child_samples=2"]


class Measurements(FolderCase):
    def speed(self, preferred):
        """TFLOPS of the kernels of one problem; the preferred one is the fastest by half."""
        return [float((3.0 if at == preferred else 1.0) * self.random.uniform(0.9, 1.1))
                for at in range(len(TILES))]

    def conv_csv(self, variant, shift=0):
        """Which tile is the best follows from the channels."""
        lines = [HEAD]
        for problem, channels in enumerate((16, 32, 64, 128, 256, 512)):
            for size in (7, 14, 28):
                for at, tflops in enumerate(self.speed((problem + shift) % len(TILES))):
                    pipeline = ("compv3_intrawave", "compv4", "mem_interwave_dsb_si",
                                "compv5")[at]
                    lines.append(f"grouped_conv_{variant}_bf16_2d_{TILES[at]}_{pipeline},"
                                 f"{3 * problem},2,{channels},64,1,{size},{size},3,3,1,1,1,1,"
                                 f"{1 / tflops},{tflops}")
        file = self.place / f"{variant}.csv"
        file.write_text("\n".join(lines) + "\n")
        return file

    def gemm_json(self):
        results = []
        for at, tile in enumerate(((256, 256, 64), (16, 64, 128), (64, 64, 64))):
            config = {"name": f"gemm_fp16_rcr_{at}", "pipeline": ("compv4", "mem", "compv3")[at],
                      "epilogue": "cshuffle", "scheduler": "intrawave", "pad_m": False,
                      "pad_n": False, "pad_k": False, "persistent": False,
                      **dict(zip(("tile_m", "tile_n", "tile_k"), tile)), "warp_m": 2, "warp_n": 2,
                      "warp_k": 1, "warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 32}
            runs = [{"kernel_name": config["name"], "m": m, "n": 512, "k": 256, "is_valid": m != 7,
                     "avg_time_ms": 0.5, "tflops": float((3 if (m > 500) == (at == 0) else 1) *
                                                         self.random.uniform(0.9, 1.1)),
                     "error": ""} for m in (7, 16, 100, 300, 600, 1000, 3000)]
            results.append({"kernel_config": config, "benchmarks": runs})
        file = self.place / "r.json"
        file.write_text(json.dumps({"metadata": {"dtype": "fp16", "layout": "rcr"},
                                    "results": results}))
        return file

    def script(self, module, *words):
        """Runs a script's main() by its command line."""
        before, sys.argv = sys.argv, [module.__name__, *map(str, words)]
        try:
            return quietly(module.main)
        finally:
            sys.argv = before


@has_tables
class Converted(Measurements):
    def test_tiles_may_be_mixed(self):
        file, place = self.conv_csv("bwd_weight"), self.place / "t.parquet"
        code, told = self.script(from_csv, "--input", file, "--output", place, "--arch", "gfx950")
        self.assertEqual((code, told), (0, f"72 measurements in {place}\n"))
        table = read_table(place)
        self.assertEqual(sorted({f"{a}x{b}x{c}" for a, b, c in zip(
            table["block_size"], table["gemm_m_per_block"], table["gemm_n_per_block"])}),
            sorted(TILES))
        self.assertEqual({key: table[key].iloc[2] for key in (
            "op_type", "variant", "dtype", "ndim_spatial", "pipeline", "wave_mode", "has_dsb",
            "has_si", "arch", "hw_num_cus")},
            {"op_type": "grouped_conv", "variant": "bwd_weight", "dtype": "bf16",
             "ndim_spatial": 2, "pipeline": "mem", "wave_mode": "interwave", "has_dsb": 1,
             "has_si": 1, "arch": "gfx950", "hw_num_cus": 256})
        table = from_csv.convert_csv_to_parquet(
            file, place, kernel_pattern=r"grouped_conv_(?P<which>[a-z_]+)_bf16.*",
            variant="forward")
        self.assertEqual((set(table["which"]), set(table["variant"])),
                         ({"bwd_weight"}, {"forward"}))

    def test_nested_results(self):
        place = self.place / "d/t.parquet"
        code, told = self.script(from_json, "--input", self.gemm_json(), "--output", place,
                                 "--arch", "gfx950", "--merge_with", place)
        self.assertEqual(code, 0)
        self.assertIn(f"18 measurements in {place}, 3 runs failed\n", told)
        self.assertIn("42 rows in ", told)
        table = read_table(place)
        self.assertEqual(table[table["pipeline"] == "mem"]["pad_k"].tolist(), [True] * 7)
        self.assertFalse(table[table["pipeline"] == "compv3"]["pad_k"].any())
        row = table[table["m"] == 100].iloc[0]
        self.assertAlmostEqual(row["bandwidth_gb_s"],
                               2e-9 * (100 * 256 + 256 * 512 + 100 * 512) / 0.5e-3)
        self.assertEqual(table[table["m"] == 7]["measured_tflops"].tolist(), [0, 0, 0])


@has_tables
@has_lightgbm
class Trained(Measurements):
    def converted(self, variant, shift=0):
        place = self.place / f"data/{variant}/t.parquet"
        from_csv.convert_csv_to_parquet(self.conv_csv(variant, shift), place)
        return place

    def trained(self, out, data, *words):
        code, told = quietly(train.main, [
            "--data_dir", str(data), "--out_dir", str(out), "--operation", "grouped_conv",
            "--dtype", "bf16", *words, *FEW])
        self.assertEqual(code, 0, told)
        return json.loads((out / "feature_spec.json").read_text())

    def test_convolutions_of_every_direction(self):
        for variant in ("forward", "bwd_data", "bwd_weight"):
            data, out = self.converted(variant).parent, self.place / variant
            spec = self.trained(out, data, "--arch", "gfx950")
            self.assertEqual((spec["arch"], len(spec["feature_names"]), spec["targets"]),
                             ("gfx950", 97, ["tflops"]))
            self.assertTrue((out / "oof_predictions.parquet").is_file())
            code, told = self.script(
                validate_ml_vs_oracle, "--variant", variant, "--model-dir", out, "--oracle-csv",
                self.place / f"{variant}.csv", "--save-predictions", self.place / "p.csv")
            self.assertEqual(code, 0, told)
            self.assertIn("18 problems: mean 100.00%", told, f"seed {SEED}")
            self.assertIn("the best 18/18", told)
            _, told = quietly(evaluate.main, ["--model_dir", str(out), "--data_dir", str(data),
                                              "--dtype", "bf16"])
            self.assertIn("of 18\n", told)

    def test_a_direction_is_taken_from_several(self):
        for shift, variant in enumerate(("forward", "bwd_data")):
            self.converted(variant, shift)
        for words, wanted in (((), "forward"), (("--direction", "bwd_data"), "bwd_data")):
            self.trained(self.place / "m", self.place / "data", *words)
            oracle = self.place / f"{wanted}.csv"
            _, told = self.script(validate_ml_vs_oracle, "--variant", wanted, "--model-dir",
                                  self.place / "m", "--oracle-csv", oracle)
            self.assertIn("the best 18/18", told, f"seed {SEED}")
        with self.assertRaisesRegex(tessera.Error, "there are bwd_data, forward"):
            quietly(train.main, ["--data_dir", str(self.place / "data"), "--operation",
                                 "grouped_conv", "--direction", "bwd_weight", "--dtype", "bf16"])

    def test_a_swapped_folder_beside_the_scripts_changes_the_answer(self):
        stem = "grouped_conv_bwd_data_test_gfx950"
        theirs = predict.HEURISTICS / "models" / stem
        self.addCleanup(lambda: (shutil.rmtree(theirs, ignore_errors=True),
                                 _remove_if_empty(theirs.parent)))
        answers = []
        for shift in (0, 1):
            data = self.converted("bwd_data", shift).parent
            self.trained(self.place / f"m{shift}", data)
            shutil.rmtree(theirs, ignore_errors=True)
            shutil.copytree(self.place / f"m{shift}", theirs)
            oracle = self.place / "first.csv"
            if shift == 0:
                shutil.copy(self.place / "bwd_data.csv", oracle)
            _, told = self.script(validate_ml_vs_oracle, "--variant", "bwd_data", "--dtype", "test",
                                  "--oracle-csv", oracle)
            answers.append(told.partition("the best ")[2].strip())
        self.assertEqual(answers, ["18/18", "0/18"], f"seed {SEED}")
        self.assertEqual(predict.model_place(f"models/{stem}"), theirs)

    def test_gemm_and_what_predict_prints(self):
        place = self.place / "data/t.parquet"
        from_json.convert_json_to_parquet(self.gemm_json(), place)
        out = self.place / "models/gemm_universal_fp16_gfx950"
        code, told = quietly(train.main, [
            "--data_dir", str(place.parent), "--out_dir", str(out), "--dtype", "fp16", "--targets",
            "tflops,latency,bandwidth", *FEW])
        self.assertEqual(code, 0, told)
        self.assertEqual(json.loads((out / "feature_spec.json").read_text())["arch"], "gfx950")
        for m, best in ((20, ("gemm_fp16_rcr_1", "gemm_fp16_rcr_2")), (900, ("gemm_fp16_rcr_0",))):
            _, told = self.script(predict, "--model_dir", out, "--m", m, "--n", 512, "--k", 256)
            lines = [line for line in told.splitlines() if " TFLOPS " in line]
            self.assertEqual(len(lines), 3, told)
            self.assertIn(lines[0].split()[-1], best, f"seed {SEED}")
            self.assertRegex(lines[0], r" TFLOPS +0\.5 ms +[\d.e+]+ GB/s  gemm_fp16_rcr_")
        code, told = self.script(validate_ml_heuristic, "--model_dir", out, "--data_dir",
                                 place.parent, "--output_dir", self.place)
        self.assertIn("6 problems: mean", told)

    def test_kernels_without_data_are_the_legal_ones(self):
        from_json.convert_json_to_parquet(self.gemm_json(), self.place / "d/t.parquet")
        quietly(train.main, ["--data_dir", str(self.place / "d"), "--out_dir",
                             str(self.place / "a/m"), "--dtype", "fp16", *FEW])
        _, told = self.script(predict, "--model_dir", self.place / "a/m", "--m", 64, "--n", 512,
                              "--k", 256, "--top", 2)
        self.assertEqual(told.count("_gfx950\n"), 2, told)


class Documented(unittest.TestCase):
    def test_the_83_features_of_the_documented_models(self):
        engine = GroupedConvDocumentedFeatureEngine()
        names = engine.get_feature_names()
        self.assertEqual((len(names), len(set(names))), (83, 83))
        self.assertEqual([names[at] for at in (0, 29, 30, 37, 38, 52, 53, 70, 71, 82)],
                         ["N", "aspect_ratio_filter", "log2_channels_per_group",
                          "is_small_batch_grouped", "block_size", "is_compv5", "gemm_m_output",
                          "problem_smaller_than_tile_k", "hw_num_cus", "hw_num_xcd"])

    def test_what_does_not_say_its_tile_is_no_kernel(self):
        for engine in (GroupedConvDocumentedFeatureEngine(),
                       train.get_feature_engine("gemm_universal")):
            for config in ({}, {"pipeline": "mem"}, {"gemm_m_per_block": 64, "tile_m": 64}):
                self.assertIs(engine.validate_config(config), False)
        self.assertTrue(engine.validate_config({
            "tile_m": 64, "tile_n": 64, "tile_k": 64, "warp_m": 2, "warp_n": 2, "warp_k": 1,
            "warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 16, "pipeline": "mem"}))


def _remove_if_empty(folder: pathlib.Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


if __name__ == "__main__":
    unittest.main()
