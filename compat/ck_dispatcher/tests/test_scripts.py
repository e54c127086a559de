"""The documented command lines: their output files and exit codes."""
import contextlib
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import tessera
from support import COMPAT, HERE, Case, long

import arch_specs_rows as rows
import predict
from grouped_conv_utils import GroupedConvKernelConfig, setup_multiple_grouped_conv_dispatchers
from tessera_ck import gemm as _gemm
from tessera_ck import targets

ROOT = COMPAT.parents[1]
ENGINE = "tile_engine/ops/grouped_conv"


class Scripts(Case):
    def setUp(self):
        super().setUp()
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_script(self, name, *words, code=0, stdin=None, **env):
        found = subprocess.run(
            [sys.executable, str(COMPAT / name), *map(str, words)], cwd=self.folder, input=stdin,
            capture_output=True, text=True, env={**os.environ, **env})
        if "LightGBM is not installed" in found.stderr:
            self.skipTest(found.stderr.strip())
        self.assertEqual(found.returncode, code, f"{name}: {found.stdout}{found.stderr}")
        return found


class Generating(Scripts):
    def test_gemm(self):
        found = self.run_script("codegen/unified_gemm_codegen.py", "--output-dir", "kernels",
                                "--datatype", "fp16", "--layout", "rcr", "--variants", "standard",
                                "preshuffle", "multi_d", "--register", "--no-parallel",
                                "--no-arch-filter")
        self.assertTrue(found.stdout.startswith(
            "tessera generate --jobs 1 --preselected fp16_rcr_essential"), found.stdout)
        self.assertIn(f"target {targets.resolve().name} (", found.stdout)
        place = self.folder / "kernels"
        names = [path.stem for path in place.glob("gemm_*.hpp")]
        self.assertTrue(any(name.endswith("_preshuffle") for name in names))
        self.assertTrue(any(name.endswith("_multid_Relu_d1") for name in names))
        table = json.loads((place / "kernel_names.json").read_text())
        self.assertEqual(sorted(table), sorted(names))
        self.assertEqual(len(list(place.glob("gemm_*.cpp"))), len(names))
        self.assertEqual(len(list(place.glob("dispatcher_wrappers/dispatcher_wrapper_*.hpp"))),
                         len(names))
        text = (place / "dispatcher_wrappers/register_all_kernels.hpp").read_text()
        self.assertEqual(text.count('"gemm_'), len(names))
        self.assertTrue((place / "registration/dispatcher_registration.cpp").is_file())

    def test_gemm_by_sets_and_configurations(self):
        script = "codegen/unified_gemm_codegen.py"
        found = self.run_script(script, "--output-dir", "a", "--preselected", "fp16_rcr_essential",
                                "--kernel-set", "sub")
        self.assertIn("kernels in a/sub", found.stdout)
        config = json.dumps({"tile_config": {"tile_m": [64, 128]}})
        self.run_script(script, "--output-dir", "b", "--tile-config-json", config)
        (self.folder / "c.json").write_text(config)
        self.run_script(script, "--output-dir", "c", "--config", "c.json")
        self.assertEqual(*(sorted(path.name for path in (self.folder / name).glob("*.hpp"))
                           for name in "bc"))
        wrong = self.run_script(script, "--output-dir", "d", "--preselected", "none", code=1)
        self.assertIn("there is no set 'none'", wrong.stderr)
        self.run_script(script, "--datatype", "fp16", code=2)
        row = self.run_script(script, "--show-arch-info", "--gpu-target", "gfx942").stdout
        self.assertTrue(row.startswith("tessera targets gfx942\n"))
        self.assertIn("=== Architecture Info for gfx942 ===", row)

    def test_convolutions(self):
        script = "codegen/unified_grouped_conv_codegen.py"
        found = self.run_script(script, "--output-dir", "conv", "--datatype", "fp16", "--variant",
                                "forward", "backward_data", "--ndim-spatial", "2")
        self.assertTrue(found.stdout.startswith("tessera generate "), found.stdout)
        names = sorted(path.name for path in (self.folder / "conv").glob("grouped_conv_*.hpp"))
        for short in ("fwd", "bwd_data"):
            self.assertTrue(any(name.startswith(f"grouped_conv_{short}_fp16_nhwgc_2d_")
                                for name in names), names)
        text = (self.folder / "conv/register_all_grouped_conv_kernels.hpp").read_text()
        self.assertIn("get_grouped_conv_bwd_weight_kernel_count() { return 0; }", text)
        listed = self.run_script(script, "-d", "fp32", "-v", "bwd_weight", "-n", "3",
                                 "--list-configs").stdout
        self.assertIn("_3d_", listed)
        if not targets.pipelines(targets.resolve("gfx942"), "conv"):
            wrong = self.run_script(script, "-a", "gfx942", code=1)
            self.assertIn("target gfx942 has no kernels for convolutions", wrong.stderr)

    def test_limits_of_targets(self):
        self.run_script("codegen/generate_arch_specs.py", "--output-dir", "specs")
        made = {}
        exec((self.folder / "specs/arch_specs_generated.py").read_text(), made)
        self.assertTrue(set(rows.__all__) <= set(made))
        for name in rows.TABLES:
            self.assertEqual(made[name], getattr(rows, name), name)
        for arch, pipeline in (("gfx950", "compv4"), ("sm90a", "tma"), ("compv4", "gfx942"),
                               ("gfx9999", "mem")):
            self.assertEqual(made["get_lds_limit"](arch, pipeline),
                             rows.get_lds_limit(arch, pipeline))
        self.assertTrue((self.folder / "specs/include/ck_tile/dispatcher/arch_specs_generated.hpp"
                         ).is_file())
        wrong = self.run_script("codegen/generate_arch_specs.py", "--json", "none.json", code=1)
        self.assertIn("none.json cannot be read", wrong.stderr)

    def test_limits_lie_where_the_modules_read_them(self):
        shutil.copytree(COMPAT / "codegen", self.folder / "codegen")
        (self.folder / "python").symlink_to(COMPAT / "python")
        place = self.folder / "codegen/arch_specs_generated.py"
        header = self.folder / "include/ck_tile/dispatcher/arch_specs_generated.hpp"
        header.parent.mkdir(parents=True)
        header.write_text("a header of this copy")
        script = self.folder / "codegen/generate_arch_specs.py"
        before = place.read_text()
        self.run_script(script)
        self.assertEqual((place.read_text(), header.read_text()), (before, "a header of this copy"))
        (self.folder / "codegen/arch_specs.json").write_text(json.dumps({
            "architectures": {"gfx777": {
                "family": "cdna7", "lds_capacity_kb": 96, "warp_configs": [[2, 2, 1], [4, 4, 1]],
                "warp_tile_combos": {"fp16_fp16_fp32": [[32, 32, 8]]}}},
            "element_sizes": {"_comment": "bytes", "fp16": 2},
            "unsupported_trait_combos": {"combinations": [["compv3", "default", "interwave"]]}}))
        self.run_script(script)
        made = {}
        exec(place.read_text(), made)
        self.assertTrue(set(rows.__all__) <= set(made))
        self.assertEqual((made["ARCH_FAMILY_MAP"], made["ELEMENT_SIZE_MAP"]),
                         ({"gfx777": "cdna7"}, {"fp16": 2}))
        self.assertEqual([made["get_lds_limit"]("gfx777", each) for each in ("mem", "compv4")],
                         [98304, 49152])
        self.assertEqual(made["get_warp_tile_combos"]("gfx777", "fp16"), [[32, 32, 8]])
        self.assertEqual([made["is_trait_combo_unsupported"]("compv3", each, "interwave")
                          for each in ("default", "cshuffle")], [True, False])

    def test_compiling_examples(self):
        script = "scripts/compile_grouped_conv_examples.py"
        source = COMPAT / "tests/cpp/grouped_conv_test.cpp"
        found = self.run_script(script, source, "--no-compile")
        self.assertEqual(found.stdout, f"{source}: declares both, fp32\n")
        self.assertIn("no source is given", self.run_script(script, code=1).stderr)
        self.assertIn("there is no file none.cpp",
                      self.run_script(script, "none.cpp", code=1).stderr)


class Converting(Scripts):
    config = {"dtype": "fp16", "layout": "rcr", "pipeline": "mem", "epilogue": "cshuffle",
              "scheduler": "intrawave", "pad_m": False, "pad_n": False, "pad_k": False,
              "persistent": False, "tile_m": 128, "tile_n": 128, "tile_k": 64, "warp_m": 2,
              "warp_n": 2, "warp_k": 1, "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 8,
              "name": "gemm_fp16_rcr_mem_cshuffle_intrawave_False_False_False_False_128x128x64_"
                      "2x2x1_32x32x8"}
    kernel = "gemm_fp16_rcr_mem_128x128x64_2x2x1_32x32x8_intrawave_storecshuffle_gfx942"

    def rows(self, name, outcome="ok"):
        with open(self.folder / name, newline="") as stream:
            return [(row["problem"], row["kernel"], float(row["seconds"]))
                    for row in csv.DictReader(stream) if row["outcome"] == outcome]

    def test_nested_results(self):
        whole = {"metadata": {"dtype": "fp16", "layout": "rcr"}, "problem_sizes": [], "results": [
            {"kernel_config": self.config, "benchmarks": [
                {"kernel_name": "x", "m": 64, "n": 32, "k": 128, "avg_time_ms": 0.5, "tflops": 1,
                 "is_valid": True, "error": ""},
                {"kernel_name": "x", "m": 1, "n": 1, "k": 1, "avg_time_ms": 0, "tflops": 0,
                 "is_valid": False, "error": "no"}]}]}
        (self.folder / "in.json").write_text(json.dumps(whole))
        script = "heuristics/convert_json_to_parquet.py"
        found = self.run_script(script, "--input", "in.json", "--output", "out.csv", "--arch",
                                "gfx942")
        self.assertTrue(found.stdout.startswith("tessera data import "), found.stdout)
        wanted = [("gemm m=64 n=32 k=128 dtype=fp16", self.kernel, 0.0005)]
        self.assertEqual(self.rows("out.csv"), wanted)
        self.assertEqual(self.rows("out.csv", "failed"),
                         [("gemm m=1 n=1 k=1 dtype=fp16", self.kernel, 0)])
        self.assertIn("1 mem kernels whose padding flags were mended\n", found.stdout)
        self.assertTrue(found.stdout.endswith("1 measurements in out.csv\n"), found.stdout)
        spec = tessera.command("show", kernel=self.kernel, target="gfx942", check=False)["spec"]
        self.assertEqual((spec["algorithm"]["pipeline"], spec["algorithm"]["store"]),
                         ("mem", "cshuffle"))
        whole["results"][0]["benchmarks"][0]["k"] = 256
        (self.folder / "in.json").write_text(json.dumps(whole))
        self.run_script(script, "--input", "in.json", "--output", "more.csv", "--arch", "gfx942",
                        "--merge_with", "out.csv")
        self.assertEqual(len(self.rows("more_merged.csv")), 2)
        for text, words in (("[]", "in.json holds no valid measurement"),
                            ("{}", "'in.json': an array of objects is wanted")):
            (self.folder / "in.json").write_text(text)
            wrong = self.run_script(script, "--input", "in.json", "--output", "x.csv", code=1)
            self.assertIn(words, wrong.stderr)

    def test_logs(self):
        block = {"name": self.config["name"], "problem": {"m": 8, "n": 16, "k": 32},
                 "perf_result": {"latency(ms)": 0.25, "tflops(TFlops)": 1, "bandwidth(GB/s)": 2}}
        (self.folder / "run.log").write_text(
            "started\nShape 1: M=8 N=16 K=32 dtype=fp16 layout=rcr\n" + json.dumps(block, indent=2))
        self.run_script("heuristics/data_pipeline.py", "run.log", "-o", "out.csv", "--arch",
                        "gfx942", "--capture_hw")
        self.assertEqual(self.rows("out.csv"),
                         [("gemm m=8 n=16 k=32 dtype=fp16", self.kernel, 0.00025)])
        row = json.loads((self.folder / "out.csv.hw.json").read_text())
        self.assertEqual((row["hw_num_cus"], row["hw_wavefront_size"]), (304, 64))
        (self.folder / "run.log").write_text(
            "Shape 1: M=8 N=16 K=32 dtype=fp16 layout=rcr\n{ this is not valid json }\n" +
            json.dumps(block) + '\n{"name": "is not closed",\n')
        found = self.run_script("heuristics/data_pipeline.py", "run.log", "-o", "less.csv",
                                "--arch", "gfx942")
        self.assertIn("2 blocks skipped\n", found.stdout)
        self.assertEqual(self.rows("less.csv"), self.rows("out.csv"))
        (self.folder / "run.log").write_text("nothing")
        wrong = self.run_script("heuristics/data_pipeline.py", "run.log", "-o", "x.csv", code=1)
        self.assertIn("'run.log': no measurements were found", wrong.stderr)

    def test_convolutions(self):
        head = ("kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms,"
                "tflops")
        line = "grouped_conv_forward_bf16_2d_128x128x64_compv3,0,2,64,32,1,9,9,3,3,1,1,1,1,0.5,1\n"
        other = line.replace("compv3", "mem")
        (self.folder / "in.csv").write_text(f"{head}\n{line}{other}")
        script = "heuristics/convert_csv_to_parquet.py"
        common = ["--input", "in.csv", "--output", "out.csv", "--arch", "gfx942"]
        wrong = self.run_script(script, *common, code=1)
        self.assertIn("'in.csv': row 1 does not say its kernel's 'warp_m'", wrong.stderr)
        self.run_script(script, *common, "--wave", "2x2x1", "--warp-tile", "32x32x16",
                        "--kernel-pattern", "compv3")
        self.assertEqual(self.rows("out.csv"), [(
            "conv direction=forward n=2 c=64 k=32 h=9 w=9 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16",
            "conv_forward_bf16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle_"
            "gfx942", 0.0005)])

    def test_pairs_of_waves_and_warp_tiles(self):
        head = ("kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms,"
                "tflops")
        rows = [f"grouped_conv_forward_bf16_2d_{tile}_compv3,0,2,64,32,1,9,9,3,3,1,1,1,1,0.5,1"
                for tile in ("128x128x64", "16x64x64", "64x64x64")]
        (self.folder / "in.csv").write_text("\n".join([head, *rows]))
        script = "heuristics/convert_csv_to_parquet.py"
        common = ["--input", "in.csv", "--output", "out.csv", "--arch", "gfx942", "--wave", "2x2x1"]
        self.run_script(script, *common, "1x4x1", "--warp-tile", "32x32x16", "16x16x16")
        self.assertCountEqual([kernel.partition("compv3_")[2].partition("_intra")[0]
                               for _, kernel, _ in self.rows("out.csv")],
                              ["128x128x64_2x2x1_32x32x16", "64x64x64_2x2x1_32x32x16",
                               "16x64x64_1x4x1_16x16x16"])
        for words, sentence in ((["--warp-tile", "32x32x16"], "divide over waves 2x2x1"),
                                (["1x4x1", "--warp-tile", "32x32x16"], "got 2 and 1"),
                                (["1x4x1", "--warp-tile", "32x32x16", "32x32x16"],
                                 "divides over none of the 2 pairs")):
            self.assertIn(sentence, self.run_script(script, *common, *words, code=1).stderr)

    def test_what_was_measured_on_an_amd_gpu_is_learned(self):
        sizes = [(m, 256, 512) for m in range(100, 3100, 100)]
        results = [{"kernel_config": {**self.config, "pipeline": pipeline, "name":
                                      self.config["name"].replace("_mem_", f"_{pipeline}_")},
                    "benchmarks": [{"m": m, "n": n, "k": k, "is_valid": True, "avg_time_ms":
                                    float(1e-4 * m * self.random.uniform(0.9, 1.1))}
                                   for m, n, k in sizes]} for pipeline in ("mem", "compv3")]
        (self.folder / "in.json").write_text(json.dumps(
            {"metadata": {"dtype": "fp16", "layout": "rcr"}, "results": results}))
        self.run_script("heuristics/convert_json_to_parquet.py", "--input", "in.json", "--output",
                        "data/t.csv", "--arch", "gfx942")
        self.run_script("heuristics/train.py", "--data_dir", "data", "--out_dir", "m", "--op",
                        "gemm_universal", "--dtype", "fp16", "--arch", "gfx942", "--n_splits", "2",
                        "--n_estimators", "5", "--param", "min_data_in_leaf=1")
        model = predict.Predictor(self.folder / "m")
        self.assertGreater(model.predict_tflops(
            {"M": 500, "N": 256, "K": 512, "dtype": "fp16"}, {"kernel_name": self.kernel}), 0)

    def test_a_model_of_streamk_knows_no_other_kernels(self):
        machine = targets.resolve("sm90a")
        streamk = _gemm.legal_kernels(machine, "fp8", "rcr", where=["streamk=true"])[:2]
        other = next(name for name in _gemm.legal_kernels(machine, "fp8", "rcr")
                     if "_tmaws_" in name and "_streamk_" not in name)
        header = ("kind problem kernel outcome seconds spread min_seconds readings finalist at "
                  "note run device target threads version abi compiler protocol seed clock_mhz "
                  "started")
        rows = [header.split()]
        for m in range(100, 3100, 100):
            for place, kernel in enumerate([*streamk, other]):
                seconds = float(1e-6 * (m + 50 * place) * self.random.uniform(0.9, 1.1))
                rows.append(["row", f"gemm m={m} n=4096 k=4096 dtype=fp8", kernel, "ok", seconds, 0,
                             seconds, 3, 0, 0, "", "run", "GPU", "sm90a", 1, "0.1.0", 5, "none",
                             "none", 1, 0, 0])
        with open(self.folder / "s.csv", "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)
        common = ["--op", "gemm_streamk", "--dtype", "fp8"]
        self.run_script("heuristics/train.py", "--data_dir", "s.csv", "--out_dir", "m", *common,
                        "--arch", "sm90a", "--n_splits", "2", "--n_estimators", "5", "--param",
                        "min_data_in_leaf=1")
        manifest = json.loads((self.folder / "m/train_manifest.json").read_text())
        # One shape of three is never learned from.
        self.assertEqual((manifest["data_rows"], manifest["unique_shapes"]), (40, 20))
        told = self.run_script("heuristics/evaluate.py", "--model_dir", "m", "--data_dir", "s.csv",
                               *common).stdout
        # A kernel is predicted where it is a candidate; some tiles are only for some sizes.
        model = tessera.Model.load(str(self.folder / "m/tflops"))
        lines = [line for _, line, kernel, *_ in rows[1:] if kernel == streamk[0]]
        ranked = [{row["kernel"] for row in model.rank(tessera.Problem(line))} for line in lines]
        self.assertTrue(any(other in kernels for kernels in ranked))
        known = sum(kernel in kernels for kernels in ranked for kernel in streamk)
        self.assertGreater(known, 1)
        self.assertIn(f"TFLOPS  of {known} rows", told)
        for script, most in (("predict.py", "--top"), ("search.py", "--top_k")):
            told = self.run_script(f"heuristics/{script}", "--model_dir", "m", "--m", 700, "--n",
                                   4096, "--k", 4096, most, 3).stdout
            self.assertEqual(told.count("TFLOPS  "), 3, told)
            self.assertEqual(told.count("_streamk_"), 3, told)

    def test_benchmarks_of_streamk_are_built(self):
        script = ["heuristics/generate_benchmark_data.py", "--op", "gemm_streamk", "--dtype", "fp8",
                  "--only_build", "--output_dir", "out"]
        found = self.run_script(*script, "--gpu-target", "sm90a", "--max_kernels", "3")
        self.assertIn("3 of 3 kernels of gemm_streamk are built", found.stdout)
        wrong = self.run_script(*script, "--gpu-target", "avx2", code=1)
        self.assertIn("no kernel of target 'avx2' is legal with", wrong.stderr)


class Convolving(Scripts):
    def test_one_kernel_in_its_own_process(self):
        items = [{"problem": {"N": 1, "C": 8, "K": 8, "Hi": 6, "Wi": 6, "dtype": "fp32"}},
                 {"problem": {"N": 1, "C": 8, "K": 9, "G": 2}}, {"problem": {"M": 1}}]
        found = self.run_script(f"{ENGINE}/run_one_grouped_conv_kernel.py", code=1,
                                stdin=json.dumps({"items": items}))
        rows = [json.loads(line) for line in found.stdout.splitlines()]
        self.assertEqual([(row["idx"], row["ok"]) for row in rows],
                         [(0, True), (1, False), (2, False)])
        self.assertEqual(set(rows[0]), {"idx", "ok", "ms", "tflops", "non_zero", "kernel"})
        self.assertGreater(rows[0]["non_zero"], 100)
        self.assertEqual(rows[2]["error"], "a problem has no field 'M'")
        one = self.run_script(f"{ENGINE}/run_one_grouped_conv_kernel.py", stdin=json.dumps(
            {**items[0], "kernel_name": rows[0]["kernel"], "so_path": None}))
        self.assertEqual(json.loads(one.stdout)["kernel"], rows[0]["kernel"])
        config = GroupedConvKernelConfig(dtype="fp32", layout="NHWGC_KYXGC_NHWGK", arch=None)
        file = setup_multiple_grouped_conv_dispatchers([config], verbose=False)[0]
        for name in (file.stem, "grouped_conv_forward_fp32_2d_16x64x64_compv3"):
            one = self.run_script(f"{ENGINE}/run_one_grouped_conv_kernel.py", stdin=json.dumps(
                {**items[0], "kernel_name": name, "so_path": str(file)}))
            self.assertGreater(json.loads(one.stdout)["non_zero"], 100)

    def test_a_whole_benchmark_and_its_conversion(self):
        lines = ["conv direction=forward n=1 c=8 k=8 h=6 w=6 y=3 x=3 pad_h=1 pad_w=1",
                 "conv direction=forward n=2 c=16 k=8 h=5 w=5"]
        (self.folder / "set.txt").write_text("\n".join(lines))
        found = self.run_script(f"{ENGINE}/grouped_conv_full_benchmark.py",
                                "conv_forward_fp32_nhwgc_2d_direct*", "--problem_set", "set.txt",
                                "--csv", "out/r.csv", "--workers", "2", "--dtype", "fp32")
        self.assertIn("tessera sweep --problems out/r.problems.txt", found.stdout)
        with open(self.folder / "out/r.csv", newline="") as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual([(row["problem_idx"], row["C"]) for row in rows],
                         [("0", "8"), ("1", "16")])
        self.run_script("heuristics/convert_csv_to_parquet.py", "--input", "out/r.csv", "--output",
                        "out/t.csv", "--dtype", "fp32", "--variant", "forward")
        with open(self.folder / "out/t.csv", newline="") as stream:
            again = list(csv.DictReader(stream))
        self.assertEqual([row["problem"] for row in again], lines)
        self.assertEqual([row["kernel"] for row in again], [row["kernel"] for row in rows])

    @long
    def test_what_this_machine_chooses_against_all_its_kernels(self):
        sys.path.insert(0, str(COMPAT / "heuristics/validation/grouped_conv"))
        import _shapes
        from validate_backward_models import SHAPES as backward
        from validate_training_shapes import SHAPES as training
        from grouped_conv_utils import GroupedConvProblem
        self.assertEqual((len(training), len(backward)), (5, 7))
        tiny = [GroupedConvProblem(C=4, K=4, Hi=4, Wi=4, Di=3, Z=2, dtype="fp32")]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(_shapes.validate(tiny, "fp32", 0.0), 0)
            self.assertEqual(_shapes.validate(tiny, "fp32", 1.01), 1)
        self.assertRegex(said.getvalue(), r"1 problems: mean .*: PASS \(at least 0%\)")

    def test_comparing_choices(self):
        head = "problem,chosen,chosen_tflops,best,best_tflops,predicted_tflops,efficiency\n"
        (self.folder / "old.csv").write_text(head + "a,k,1,k,1,1,1\nb,k,0.9,l,1,1,0.9\n")
        (self.folder / "new.csv").write_text(head + "a,k,1,k,1,1,1\nb,l,1,l,1,1,1\n")
        script = f"{ENGINE}/compare_model_predictions.py"
        found = self.run_script(script, "--old-predictions", "old.csv", "--new-predictions",
                                "new.csv", "--variant", "bwd_data").stdout
        self.assertIn("bwd_data: agreement 1/2 (50.0%)\n", found)
        self.assertIn("mean    old  95.00%  new 100.00%  delta +5.00%", found)
        self.assertIn("improved 1, same 1, degraded 0\n", found)
        self.assertTrue(found.endswith("PASS\n"))
        back = self.run_script(script, "--old-predictions", "new.csv", "--new-predictions",
                               "old.csv", code=1).stdout
        self.assertTrue(back.endswith("FAIL\n"), back)
        worst = self.run_script(f"{ENGINE}/compare_ml_vs_oracle.py", "--ml-csv", "old.csv",
                                "--shapes", "1").stdout
        self.assertIn(" 90.00%  b\n         chosen k\n         best   l\n", worst)
        (self.folder / "old.csv").write_text("nothing\n1\n")
        wrong = self.run_script(script, "--old-predictions", "old.csv", "--new-predictions",
                                "new.csv", code=1)
        self.assertIn("holds no choices of a model", wrong.stderr)


@long
class Measuring(Scripts):
    def test_benchmark_data(self):
        found = self.run_script("heuristics/generate_benchmark_data.py", "--build_dir", "b",
                                "--output_dir", "d", "--dtype", "fp32", "--layout", "rcr",
                                "--num_build_jobs", "2", "--warmup", "10", "--repeat", "50",
                                "--max_kernels", "2", "--max_shapes", "1")
        self.assertIn("tessera sweep --problems d/sweep.problems.txt", found.stdout)
        whole = json.loads((self.folder / "d/benchmark_results_fp32_rcr.json").read_text())
        self.assertEqual((whole["metadata"]["num_kernels"], whole["metadata"]["num_problems"]),
                         (2, 1))
        one = whole["results"][0]["benchmarks"][0]
        self.assertEqual((one["m"], one["n"], one["k"], one["is_valid"]), (1, 4096, 4096, True))
        built = json.loads((self.folder / "d/build_results.json").read_text())
        self.assertEqual(len(built["built"]), 2)

    def test_coverage(self):
        kernel = tessera.KernelSet("", None).preselected("fp32_rcr_essential").kernels[0]
        for name, prefix, place in (("wide_coverage", "wide_coverage", "data"),
                                    ("edge_dims", "edge_dims", "data/edge_dims")):
            self.run_script(f"heuristics/generate_{name}.py", "--max_shapes", "1", "--dtype",
                            "fp32", "--kernels", kernel)
            text = (self.folder / place / f"{prefix}_batch_000.log").read_text()
            self.assertRegex(text, r"^Shape 0: M=\d+ N=\d+ K=\d+ dtype=fp32 layout=rcr\n{")
            self.assertIn('"latency(ms)"', text)


@long
class Learning(Scripts):
    def test_training_judging_and_comparing(self):
        data = self.folder / "data"
        data.mkdir()
        lines = [f"gemm m={m} n={n} k=32 dtype=fp32" for m in (8, 24, 48, 80)
                 for n in (16, 40, 64, 96)]
        kernels = [name for name in tessera.KernelSet("", None).preselected("fp32_rcr_essential"
                                                                            ).kernels
                   if "_packab_" in name][:2]
        tessera.sweep(problems=lines, kernels=kernels, store=str(data / "s.sqlite"))
        common = ["--data_dir", "data", "--op", "gemm_universal", "--dtype", "fp32", "--n_splits",
                  "3", "--param", "min_data_in_leaf=2"]
        found = self.run_script("heuristics/train.py", "--out_dir", "m", *common, "--n_estimators",
                                "15", "--targets", "tflops,latency,bandwidth")
        self.assertIn("tessera train --data data/s.sqlite --op gemm", found.stdout)
        model = self.folder / "m"
        for quantity in ("tflops", "latency", "bandwidth"):
            for name in (f"model_{quantity}.lgbm.gz", f"cv_metrics_{quantity}.json",
                         f"feature_importances_{quantity}.json"):
                self.assertTrue((model / name).is_file(), name)
        spec = json.loads((model / "feature_spec.json").read_text())
        self.assertEqual((spec["op_type"], spec["arch"], spec["log_targets"]),
                         ("gemm_universal", HERE, ["tflops", "bandwidth"]))
        first = json.loads((model / "train_manifest.json").read_text())
        self.assertEqual(first["warm_start_from"], None)
        self.run_script("heuristics/train.py", "--out_dir", "m2", *common, "--warm_start", "m",
                        "--warm_start_n_estimators", "5")
        second = json.loads((self.folder / "m2/train_manifest.json").read_text())
        self.assertEqual(second["prev_n_estimators"], first["total_n_estimators"])
        predictor = predict.Predictor(model)
        every = predictor.predict_all({"M": 24, "N": 40, "K": 32, "dtype": "fp32"},
                                      {"kernel_name": kernels[0]})
        self.assertEqual(set(every), {"tflops", "latency_ms", "bandwidth_gb_s"})
        told = self.run_script("heuristics/evaluate.py", "--model_dir", "m", "--data_dir", "data",
                               "--op", "gemm_universal", "--dtype", "fp32", "-o", "r.json").stdout
        self.assertRegex(told, r"R2 -?\d+\.\d{4}  RMSE \S+ TFLOPS  of 32 rows")
        report = json.loads((self.folder / "r.json").read_text())
        self.assertEqual(report["errors"]["rows"], 32)
        judged = subprocess.run(
            [sys.executable, str(COMPAT / "heuristics/validation/validate_ml_heuristic.py"),
             "--dtype", "fp32", "--model_dir", "m", "--data_dir", "data"], cwd=self.folder,
            capture_output=True, text=True)
        self.assertIn("16 problems: mean", judged.stdout, judged.stderr)
        mean = float(judged.stdout.partition("mean ")[2].partition("%")[0])
        self.assertEqual(judged.returncode, 0 if mean >= 95 else 1)
        self.assertTrue((self.folder / "validation_results_fp32_rcr.csv").is_file())

    def test_the_quality_of_a_new_model(self):
        lines = [f"conv direction=backward_data n=1 c={c} k={k} h=6 w=6 y=3 x=3 pad_h=1 pad_w=1"
                 for c in (4, 8, 16, 24) for k in (4, 8, 16, 24)]
        kernels = [f"conv_backwarddata_fp32_nhwgc_2d_{word}*" for word in (
            "direct_1x1x1", "packab_14x512")]
        tessera.sweep(problems=lines, kernels=kernels, store=str(self.folder / "s.sqlite"))
        options = ["--n_estimators", "10", "--dtype", "fp32", "--param", "min_data_in_leaf=2"]
        self.run_script("heuristics/train.py", "--operation", "grouped_conv", "--direction",
                        "bwd_data", "--data_dir", "s.sqlite", "--out_dir", "old", "--n_splits", "3",
                        *options)
        spec = json.loads((self.folder / "old/feature_spec.json").read_text())
        self.assertEqual(spec["op_type"], "grouped_conv_bwd_data")
        found = subprocess.run(
            [str(COMPAT / ENGINE / "test_model_quality.sh"), "bwd_data", "old", "s.sqlite", "out"],
            cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "PYTHON": sys.executable, "TRAIN_OPTIONS": " ".join(options)})
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.assertRegex(found.stdout, r"bwd_data: agreement (\d+)/\1 \(100\.0%\)\n")
        self.assertTrue(found.stdout.endswith("PASS\n"), found.stdout)
        usage = subprocess.run([str(COMPAT / ENGINE / "test_model_quality.sh")],
                               capture_output=True, text=True)
        self.assertEqual(usage.returncode, 2)
        self.assertIn("VARIANT OLD_MODEL MEASUREMENTS", usage.stderr)

    def test_what_cannot_be_trained(self):
        wrong = self.run_script("heuristics/train.py", "--data_dir", "none", "--out_dir", "m",
                                code=1)
        self.assertIn("none holds no measurements", wrong.stderr)
        fmha = self.run_script("heuristics/train.py", "--data_dir", "none", "--operation", "fmha",
                               code=1)
        self.assertIn("tessera train --op fmha", fmha.stderr)


if __name__ == "__main__":
    unittest.main()
