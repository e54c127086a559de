"""Calls on AMD's GPUs, which the emulator plays in a process of its own for each target."""
import os
import shutil
import subprocess
import sys
import unittest

from support import ROOT, SEED, Case

EMULATOR = os.path.join(ROOT, "build", "release", "src", "libtessera-emulated-hip.so")

# The memory of an emulated GPU lies in the process, so that NumPy can look at it.
CALLS = '''
import ctypes
import os

import numpy
import tessera

HIP = ctypes.CDLL(os.environ["TESSERA_HIP"])

class OnGpu:
    def __init__(self, array):
        address = ctypes.c_void_p()
        assert HIP.hipMalloc(ctypes.byref(address), ctypes.c_size_t(array.nbytes)) == 0
        memory = (ctypes.c_ubyte * array.nbytes).from_address(address.value)
        self.memory = numpy.frombuffer(memory, array.dtype).reshape(array.shape)
        self.memory[...] = array
    def __dlpack_device__(self):
        return (10, 0)
    def __dlpack__(self, stream=None):
        return self.memory.__dlpack__()

random = numpy.random.default_rng(SEED)

def check(name, call, arrays, result, bound):
    """The same call on the CPU, in fp32, is the reference."""
    out = OnGpu(numpy.full(result, numpy.nan, "float16"))
    call(*map(OnGpu, arrays), out=out)
    wanted = call(*(array.astype("float32") for array in arrays))
    error = abs(out.memory.astype("float32") - wanted).max()
    assert error <= bound, f"{name}: error {error} is above {bound}, seed {SEED}"

def draw(*shape):
    return random.uniform(-1, 1, shape).astype("float16")
'''
OTHERS = '''
check("rms_norm", lambda x, weight, out=None: tessera.rms_norm(x, weight, out=out),
      (draw(7, 300), draw(300)), (7, 300), 2.0**-8)
check("conv2d", lambda x, w, out=None: tessera.conv(x, w, padding=1, out=out),
      (draw(2, 9, 7, 16), draw(24, 3, 3, 16)), (2, 9, 7, 24), 2.0**-5)
check("attention", lambda q, k, v, out=None: tessera.attention(q, k, v, mask="top_left", out=out),
      (draw(1, 33, 4, 64), draw(1, 33, 2, 64), draw(1, 33, 2, 64)), (1, 33, 4, 64), 2.0**-8)
'''
MATMUL = '''
check("matmul", tessera.matmul, (draw(40, 56), draw(56, 24)), (40, 24), 8 * 2.0**-11)
'''


@unittest.skipUnless(os.path.isfile(EMULATOR), f"there is no emulator, {EMULATOR}")
@unittest.skipUnless(shutil.which("clang++-22") and shutil.which("llvm-objdump-22"),
                     "there is no clang++-22 or no llvm-objdump-22")
class EmulatedAmd(Case):
    def emulate(self, target, calls):
        code = CALLS.replace("SEED", str(SEED)) + calls
        settings = {"TESSERA_HIP": EMULATOR, "TESSERA_EMULATED_TARGET": target,
                    "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, **settings})
        self.assertEqual(made.returncode, 0, made.stderr)

    def test_matmul(self):
        for target in ("gfx90a", "gfx942", "gfx950"):
            self.emulate(target, MATMUL)

    def test_other_operations(self):
        """One target serves as well as three, another one with another seed."""
        self.emulate(("gfx90a", "gfx942", "gfx950")[SEED % 3], OTHERS)

    def test_no_gpu(self):
        """Without an emulated GPU the sentence says what is missing."""
        code = CALLS.replace("SEED", str(SEED)) + MATMUL
        settings = {"TESSERA_HIP": EMULATOR, "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, **settings})
        self.assertIn("no HIP device", made.stderr)
