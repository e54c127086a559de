"""What the tests share: paths, seeds, arrays."""
import os
import pathlib
import random
import sys
import unittest

COMPAT = pathlib.Path(os.environ.get("TESSERA_COMPAT") or
                      pathlib.Path(__file__).resolve().parents[1])
for folder in ("python", "codegen", "heuristics"):
    sys.path.insert(0, str(COMPAT / folder))

import numpy  # noqa: E402

import tessera  # noqa: E402
from tessera_ck import launching  # noqa: E402

# Compiling kernels takes longer than running them.
launching.measure_best, launching.measure_seconds = 2, 0.5

SEED = int(os.environ.get("TESSERA_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
print(f"TESSERA_TEST_SEED={SEED}", file=sys.stderr)

HERE = tessera.Dispatcher().target["name"]


# What takes long runs in './dev test --more' alone.
long = unittest.skipUnless(os.environ.get("TESSERA_LONG"), "TESSERA_LONG is not set")


class Case(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(SEED)

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def assert_here(self, target):
        """Without a target's name this machine is meant: a GPU, or else its CPU."""
        gpus = [row["name"] for row in tessera.targets()["targets"]
                if row["backend"] != "cpu" and row["runs_here"]]
        self.assertEqual(target, gpus[0] if gpus else HERE)
