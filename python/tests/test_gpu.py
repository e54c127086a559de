"""GPUs, which a driver without one plays: TESSERA_FAKE_CUDA names it. It runs no kernel."""
import os
import subprocess
import sys
import unittest

FAKE = os.environ.get("TESSERA_FAKE_CUDA", "")
HERE = os.path.dirname(os.path.abspath(__file__))

# A program of its own, because a process loads one driver.
PROGRAM = """
import concurrent.futures, ctypes, multiprocessing, os, sys, tempfile
import numpy, tessera
from test_arrays import Shared
from test_calls import build_one, some_kernels

GPU, STREAM = (2, 0), 0x7700
names = some_kernels(8)
with tempfile.TemporaryDirectory() as folder:
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
        rows = list(pool.map(build_one, names, [folder] * 8))
assert [row["error"] for row in rows] == [""] * 8, rows

driver = ctypes.CDLL(os.environ["TESSERA_CUDA_DRIVER"])
context = ctypes.c_void_p()
for result in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
               driver.cuCtxPushCurrent_v2(context)):
    assert result == 0, result


def on_gpu(shape, dtype="float32"):
    bytes, address = 4 * int(numpy.prod(shape)), ctypes.c_void_p()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0
    memory = (ctypes.c_char * bytes).from_address(address.value)
    return Shared(numpy.frombuffer(memory, dtype).reshape(shape), GPU)


x, out = on_gpu((4, 1024)), on_gpu((4, 1024))
assert tessera.softmax(x, out=out, stream=STREAM) is out
assert x.streams == [STREAM], x.streams
tessera.softmax(x, out=out)
assert x.streams == [STREAM, 1], x.streams
driver.fake_cuda_record.restype = ctypes.POINTER(ctypes.c_char)


def stream_of(launch):  # LaunchRecord: a name of 160 bytes, an int, the stream
    return ctypes.c_void_p.from_buffer_copy(driver.fake_cuda_record(launch)[168:176]).value


assert (stream_of(0), stream_of(1)) == (STREAM, None), (stream_of(0), stream_of(1))

# Lengths on a GPU are not read.
q, k, v, into = (on_gpu((12, 2, 64)) for _ in range(4))
sums = on_gpu((4,), "int32")
tessera.attention(q, k, v, seqlens_q=sums, seqlens_k=sums, max_seqlen_q=8, out=into, stream=STREAM)
assert stream_of(2) == STREAM and sums.streams == [STREAM] * 2, sums.streams

def child():
    tessera.softmax(x, out=out)

process = fork.Process(target=child)
process.start()
process.join()
print("child", process.exitcode)
"""


@unittest.skipUnless(FAKE, "TESSERA_FAKE_CUDA names no driver")
class Gpu(unittest.TestCase):
    def test_a_forked_pool_builds_and_the_parent_launches(self):
        env = {**os.environ, "TESSERA_CUDA_DRIVER": FAKE, "PYTHONPATH": os.pathsep.join(
            [HERE, os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        # A child of a process that uses the GPU is refused with a sentence.
        self.assertIn("child 1", done.stdout)
        self.assertIn("fork", done.stderr)


if __name__ == "__main__":
    unittest.main()
