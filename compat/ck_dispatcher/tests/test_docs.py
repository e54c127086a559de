"""What the pages say: the files of the table are there, and the program of the page runs."""
import os
import re
import subprocess
import sys
import unittest

from support import COMPAT, Case

ROOT = COMPAT.parents[1]
PROGRAM = """import numpy
m, n, k = 24, 32, 40
random = numpy.random.default_rng()
a, b = (random.standard_normal(shape).astype("float16") for shape in ((m, k), (k, n)))
"""


class Pages(Case):
    def test_the_table_names_files_that_are_there(self):
        text = (COMPAT / "README.md").read_text()
        names = set(re.findall(r"`([\w/]+\.(?:py|hpp|h|sh|txt))`", text))
        written = {"register_all_kernels.hpp", "tessera.hpp"}  # by scripts; Tessera's
        known = {path.name for path in COMPAT.rglob("*")}
        missing = [name for name in names - written if not (COMPAT / name).exists() and
                   name.rpartition("/")[2] not in known]
        self.assertGreater(len(names), 30)
        self.assertEqual(missing, [])
        for row in re.findall(r"^\| .* \| absent \| *\|$", text, re.MULTILINE):
            self.fail(f"a row says no reason: {row}")

    def test_requirements_name_what_is_imported(self):
        def names_of(place):
            lines = (line.partition("#")[0].strip() for line in place.read_text().splitlines())
            found = set()
            for line in filter(None, lines):
                other = line.startswith("-r ")
                found |= names_of(place.parent / line[3:]) if other else {line.replace("-", "_")}
            return found
        asked = set()
        for folder, more in (("python", ""), ("codegen", ""), ("heuristics", "-ml")):
            for file in (COMPAT / folder).rglob("*.py"):
                asked |= set(re.findall(r'(?:import_module|package)\("([a-z_]+)', file.read_text()))
            place = "requirements-ml.txt" if more else "python/requirements.txt"
            self.assertEqual(asked - names_of(COMPAT / place), set(), place)
        self.assertEqual(asked, {"pandas", "pyarrow", "lightgbm", "ml_dtypes"})

    def test_the_program_runs(self):
        page = (ROOT / "docs/from_ck_dispatcher.md").read_text()
        snippet = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM + snippet + "\nassert ok and result.success, result"],
            cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertTrue(found.stdout.startswith("target "), found.stdout)


if __name__ == "__main__":
    unittest.main()
