"""Commands in this process: options, results, frames, call-backs."""
import importlib.util
import json
import os
import signal
import tempfile
import unittest

import numpy

import tessera
from tessera import _commands
from support import Case, needs


def has_pandas():
    return importlib.util.find_spec("pandas") is not None


class Options(Case):
    def test_words_become_json(self):
        text = _commands.options_of({"all_legal": True, "seed": numpy.int64(3), "store": None,
                                     "problems": (tessera.Problem("gemm m=1 n=1 k=1"), "square")})
        self.assertEqual(json.loads(text), {"all-legal": True, "seed": 3, "problems": [
            "gemm m=1 n=1 k=1", "square"]})
        self.assert_refused("got dict", _commands.options_of, {"x": {}})

    def test_frames(self):
        if not has_pandas():
            self.assert_refused("needs the package pandas", _commands.frame_of, {},
                                code="not_found")
            return
        import pandas
        frame = _commands.frame_of({"name": "x", "rows": [{"a": 1}, {"a": 2}], "empty": []})
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(frame["a"].tolist(), [1, 2])
        self.assertEqual(frame.attrs["name"], "x")


@needs("tsr_command")
class Commands(Case):
    def test_commands(self):
        names = [row["name"] for row in tessera.commands()]
        for name in ("sweep", "train", "evaluate", "search", "data", "report", "targets", "doctor"):
            self.assertIn(name, names)

    def test_targets(self):
        self.assertIn("avx512", json.dumps(tessera.targets()))

    def test_unknown(self):
        with self.assertRaisesRegex(tessera.Error, "swep"):
            tessera.command("swep")
        with self.assertRaisesRegex(tessera.Error, "nothing"):
            tessera.sweep(nothing=3)

    def sweep(self, folder, **options):
        """Measures one kernel on two problems, and returns the result and the store."""
        problems = [tessera.Problem("gemm m=8 n=8 k=8"), "gemm m=16 n=8 k=8"]
        kernel = tessera.select(problems[0])["kernel"]
        store = os.path.join(folder, "s.sqlite")
        return tessera.sweep(problems=problems, threads=1, kernels=[kernel], store=store,
                             budget="60s", seed=1, **options), store

    def test_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            result, store = self.sweep(folder)
            self.assertEqual(result["outcomes"], {"ok": 2})
            described = tessera.data(what="describe", files=[store])
            self.assertEqual(described["rows"], 2)
            if not has_pandas():
                return
            frame = tessera.measurements(store)
            self.assertEqual(sorted(frame[frame.kind == "row"].problem),
                             ["gemm m=16 n=8 k=8", "gemm m=8 n=8 k=8"])
            again = tessera.data(what="describe", files=[frame])
            self.assertEqual(again["rows"], 2)

    def test_train_says_what_is_missing(self):
        self.assert_refused("--data is required", tessera.train, output="model")

    def test_ctrl_c_ends_a_sweep(self):
        def progress(label, done, total, what):
            os.kill(os.getpid(), signal.SIGINT)

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(KeyboardInterrupt):
                self.sweep(folder, progress=progress)

    def test_exit_codes(self):
        kernel = tessera.select("gemm m=8 n=8 k=8")["kernel"]
        self.assertEqual(tessera.command("show", kernel=kernel, check=False)["exit_code"], 0)

    def test_a_problem_is_a_line(self):
        for problem in ("gemm m=8 n=8 k=8", tessera.Problem("gemm m=8 n=8 k=8")):
            decision = tessera.command("explain", problem=problem)
            self.assertIn("kernel", json.dumps(decision))

    def test_an_exception_ends_a_sweep(self):
        def progress(label, done, total, what):
            raise KeyError("mine")

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(KeyError, "mine"):
                self.sweep(folder, progress=progress)


if __name__ == "__main__":
    unittest.main()
