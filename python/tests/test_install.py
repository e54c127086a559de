"""What an installation consists of: the OpenMP library, packs of other packages, the versions."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import tessera
from tessera import _abi, _openmp
from support import Case

CALL = """import numpy, tessera
one = numpy.eye(128, dtype="f")
print(tessera.matmul(one, one)[0, 0])
"""
# How many threads a product starts where OpenMP's `library` was told to use more than there are
# processors, and the files of OpenMP in the process. A product of this size takes all threads.
SAY = """
import json, os, numpy
from tessera import _openmp
a = numpy.ones((1536, 1536), "f")
a @ a  # NumPy's own threads
count = os.cpu_count() + 2
before = len(os.listdir("/proc/self/task"))
library.omp_set_num_threads(count)
tessera.matmul(a, a)
started = len(os.listdir("/proc/self/task")) - before
print(json.dumps([started == count - 1, started, _openmp.loaded()]))
"""


def run(code, **environment):
    """What a fresh process prints, and what it says on stderr."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment}, check=False)
    return done.stdout, done.stderr


class OpenMp(Case):
    """Whatever has loaded GNU's OpenMP library, there is one in the process."""

    def setUp(self):
        _abi.library()
        self.library = os.path.realpath(_openmp.loaded()[0])

    def check(self, code):
        out, told = run(code + SAY)
        self.assertTrue(out, told)
        is_shared, started, files = json.loads(out)
        self.assertTrue(is_shared, f"{started} threads were started, {files}")
        return files

    def test_one_that_is_loaded_is_taken(self):
        files = self.check("import ctypes, tessera\n"
                           f"library = ctypes.CDLL({self.library!r})\ntessera._abi.library()")
        self.assertEqual(len(files), 1, files)

    def test_one_that_comes_later_is_not_loaded_again(self):
        files = self.check("import ctypes, tessera\ntessera._abi.library()\n"
                           f"library = ctypes.CDLL({_openmp.NAME!r})")
        self.assertEqual(len(files), 1, files)

    def test_one_of_another_name_is_taken(self):
        """Wheels rename the library that they carry, so that the loader takes it for another."""
        with tempfile.TemporaryDirectory() as folder:
            renamed = os.path.join(folder, "libgomp-a.so")
            text = pathlib.Path(self.library).read_bytes()
            self.assertIn(b"libgomp.so.1\0", text)
            pathlib.Path(renamed).write_bytes(text.replace(b"libgomp.so.1\0", b"libgomp-a.so\0"))
            self.check(f"import ctypes, tessera\nlibrary = ctypes.CDLL({renamed!r})")


class Packs(Case):
    """A package that an entry point of the group tessera.packs names brings packs."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "lib").mkdir()
        library = _abi.find_library().resolve()
        for file in (library, library.parent / _openmp.NAME):  # and no pack
            if file.exists():
                shutil.copy(file, self.root / "lib")
        self.library = str(self.root / "lib" / library.name)
        self.pack = library.parent / "essential.pack"

    def bring(self, name, points):
        (self.root / "site" / name).mkdir(parents=True)
        os.symlink(self.pack, self.root / "site" / name / "kernels.pack")
        facts = self.root / "site" / f"{name}-1.dist-info"
        facts.mkdir()
        (facts / "entry_points.txt").write_text(points)

    def run_here(self, code):
        path = os.pathsep.join([str(self.root / "site"), os.environ.get("PYTHONPATH", "")])
        return run(code, TESSERA_LIBRARY=self.library, TESSERA_NO_JIT="1", PYTHONPATH=path,
                   TESSERA_CACHE_DIR=str(self.root / "cache"))

    def test_kernels_of_such_a_package_are_found(self):
        out, told = self.run_here(CALL)
        self.assertIn("TESSERA_NO_JIT", told)
        self.bring("some_kernels", "[tessera.packs]\nsome = some_kernels\n")
        out, told = self.run_here(CALL)
        self.assertEqual(out, "1.0\n", told)
        out, told = self.run_here("import tessera, json; tessera.select('gemm m=1 n=1 k=1')\n"
                                  "print(json.dumps(tessera.command('version')['packs']))")
        self.assertIn("some_kernels/kernels.pack", out, told)

    def test_damaged_entry_points_bring_nothing(self):
        for name, points in (("one", "[tessera.packs]\nx = no_such_package_of_all\n"),
                             ("two", "[tessera.packs]\n[tessera.packs]\n= =\n"),
                             ("three", "[tessera.packs]\nx = ../three\n"),
                             ("four", "[other]\nx = four\n")):
            self.bring(name, points)
        out, told = self.run_here("import tessera\nprint(tessera.command('version')['packs'])")
        self.assertEqual(out, "[]\n", told)


class Versions(Case):
    def test_everything_is_said(self):
        done = subprocess.run([sys.executable, "-m", "tessera", "version", "--json"], check=True,
                              capture_output=True, text=True, timeout=120)
        said = json.loads(done.stdout)
        self.assertEqual(said["version"], tessera.__version__)
        self.assertEqual(said["c_abi"], _abi.ABI)
        self.assertIn("gemm_avx512_fp32", said["models"])
        self.assertTrue(all(row["kernels"] > 0 and row["targets"] for row in said["packs"]), said)
        done = subprocess.run([sys.executable, "-m", "tessera", "version"], check=True,
                              capture_output=True, text=True, timeout=120)
        self.assertTrue(done.stdout.startswith(f"tessera {tessera.__version__}\n"), done.stdout)

    def test_other_words_are_refused(self):
        done = subprocess.run([sys.executable, "-m", "tessera", "doktor"], check=False,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 2)
        self.assertIn("doktor", done.stderr)


if __name__ == "__main__":
    unittest.main()
