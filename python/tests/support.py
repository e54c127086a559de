"""What the tests share: seeds, references, tolerances."""
import math
import os
import random
import signal
import sys
import unittest

import numpy

import tessera
from tessera import _abi

# A shell's background jobs ignore Ctrl-C, and so would the tests of what it ends.
signal.signal(signal.SIGINT, signal.default_int_handler)

SEED = int(os.environ.get("TESSERA_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
# The checkout; the tests may lie elsewhere, so that they see the installed package alone.
ROOT = os.environ.get("TESSERA_ROOT") or os.path.join(os.path.dirname(__file__), "../..")
print(f"TESSERA_TEST_SEED={SEED}", file=sys.stderr)

# The distance of two neighbours over their size, halved: what one rounding loses.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def random_numbers():
    return numpy.random.default_rng(SEED)


def has(name):
    """Whether the library has a function."""
    return hasattr(_abi.library(), name)


def needs(name):
    return unittest.skipUnless(has(name), f"this library has no {name}")


def wide(array):
    return numpy.asarray(array).astype(numpy.float64)


def product_bound(a, b, out, extra=0.0):
    """How far a product summed in fp32 may be from the exact one: k + 2 roundings of the sum of the
    products' sizes, and one of the result. extra: sizes that are added to the sum."""
    k = a.shape[-1]
    sizes = numpy.matmul(abs(wide(a)), abs(wide(b))) + extra
    return (k + 4) * 2.0**-24 * sizes + ROUNDING[out.dtype.name] * sizes + 1e-30


def gelu(x):
    return 0.5 * x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2)))


class Case(unittest.TestCase):
    def assert_near(self, got, wanted, bound):
        error = abs(wide(got) - wide(wanted))
        worst = numpy.unravel_index(numpy.argmax(error - bound), error.shape)
        self.assertTrue((error <= bound).all(),
                        f"seed {SEED}: {wide(got)[worst]} at {worst}, wanted {wide(wanted)[worst]}")

    def assert_refused(self, pattern, function, *arguments, code="invalid_argument", **named):
        with self.assertRaisesRegex(tessera.Error, pattern) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.code, code)
