"""Commands in this process: options, results, frames, call-backs."""
import json
import os
import tempfile
import unittest

import numpy

import tessera
from tessera import _commands
from support import Case, needs


class Options(Case):
    def test_words_become_json(self):
        text = _commands.options_of({"all_legal": True, "seed": numpy.int64(3), "store": None,
                                     "problems": (tessera.Problem("gemm m=1 n=1 k=1"), "square")})
        self.assertEqual(json.loads(text), {"all-legal": True, "seed": 3, "problems": [
            "gemm m=1 n=1 k=1", "square"]})
        self.assert_refused("got dict", _commands.options_of, {"x": {}})

    def test_frames(self):
        try:
            import pandas
        except ImportError:
            self.assert_refused("needs the package pandas", _commands.frame_of, {},
                                code="not_found")
            return
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
        return tessera.sweep(problems=["gemm m=8 n=8 k=8", "gemm m=16 n=8 k=8"], threads=1,
                             kernels=["all-legal"], store=os.path.join(folder, "s.sqlite"),
                             budget="5s", seed=1, **options)

    def test_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertTrue(self.sweep(folder))

    def test_an_exception_ends_a_sweep(self):
        def progress(label, done, total, what):
            raise KeyError("mine")

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(KeyError, "mine"):
                self.sweep(folder, progress=progress)


if __name__ == "__main__":
    unittest.main()
