"""Programs for AMD's GPUs run as they are where the emulator plays one."""
import os
import shutil
import subprocess
import sys
import unittest

from support import COMPAT, Case

EMULATOR = str(COMPAT / "../../build/release/src/libtessera-emulated-hip.so")

GEMM = '''
import numpy
from ctypes_utils import KernelConfig, setup_gemm_dispatcher

found = setup_gemm_dispatcher(KernelConfig(gfx_arch="TARGET"))
assert found.success, found.error
random = numpy.random.default_rng()
a, b = (random.uniform(-1, 1, (64, 64)).astype("float16") for _ in range(2))
result = found.dispatcher.run(a, b, 64, 64, 64)
assert result.success, result
assert result.time_ms > 0
error = abs(result.output.astype("float64") - a.astype("float64") @ b.astype("float64")).max()
assert error <= 16 * 2.0**-11, error
'''


@unittest.skipUnless(os.path.isfile(EMULATOR), f"there is no emulator, {EMULATOR}")
@unittest.skipUnless(shutil.which("clang++-22") and shutil.which("llvm-objdump-22"),
                     "there is no clang++-22 or no llvm-objdump-22")
class EmulatedAmd(Case):
    def emulate(self, program, target):
        settings = {"TESSERA_HIP": EMULATOR, "TESSERA_EMULATED_TARGET": target,
                    "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run([sys.executable, "-c", program.replace("TARGET", target)],
                              capture_output=True, text=True, env={**os.environ, **settings})
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)

    def test_gemm(self):
        for target in ("gfx90a", "gfx942", "gfx950"):
            self.emulate(GEMM, target)
