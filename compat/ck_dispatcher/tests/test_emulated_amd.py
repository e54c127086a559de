"""Programs for AMD's GPUs run as they are where the emulator plays one."""
import os
import shutil
import subprocess
import sys
import unittest

from support import COMPAT, Case, long

EMULATOR = str(COMPAT / "../../build/release/src/libtessera-emulated-hip.so")

GEMM = '''
import numpy
from ctypes_utils import KernelConfig, setup_gemm_dispatcher

found = setup_gemm_dispatcher(KernelConfig(gfx_arch="TARGET"))
assert found.success, found.error
random = numpy.random.default_rng()
a, b = (random.uniform(-1, 1, (64, 64)).astype("float16") for _ in range(2))
result = found.dispatcher.run(a, b, 64, 64, 64, verify=True)
assert result.success, result
assert result.time_ms > 0
error = abs(result.output.astype("float64") - a.astype("float64") @ b.astype("float64")).max()
assert error <= 16 * 2.0**-11, error
'''

VARIANTS = '''
import numpy
from gemm_utils import (GemmKernelConfig, GemmProblem, GpuGemmRunner, GpuMultiABDRunner,
                        setup_multiple_gemm_dispatchers)

streams, groups = setup_multiple_gemm_dispatchers([
    GemmKernelConfig(variant="stream_k", gfx_arch="TARGET"),
    GemmKernelConfig(variant="multi_abd", cde_elementwise_op="MultiDAdd", num_d_tensors=2,
                     gfx_arch="TARGET")], verbose=False)
random = numpy.random.default_rng()
a, b = (random.uniform(-1, 1, shape).astype("float16") for shape in ((130, 288), (288, 140)))
result = GpuGemmRunner(streams).run(a, b, GemmProblem(130, 140, 288), verify=True)
assert result.verified, result.error
assert "_streamk_" in result.kernel_name, result.kernel_name
result = GpuMultiABDRunner(groups).run(GemmProblem(40, 72, 64), verify=True)
assert result.success, result.error
'''

# Results are compared with the fp64 reference by run() itself.
CONV = '''
import numpy
from ck_tile.dispatcher import GroupedConvProblem, GroupedConvRegistry

random = numpy.random.default_rng()
registry = GroupedConvRegistry(arch="TARGET")
for direction in ("forward", "bwd_data", "bwd_weight"):
    problem = GroupedConvProblem(N=2, C=16, K=24, G=1, Hi=7, Wi=6, pad_h=1, pad_w=1, dtype="fp16",
                                 direction=direction)
    shapes = {"forward": (problem.input_shape(), problem.weight_shape()),
              "bwd_data": (problem.output_shape(), problem.weight_shape()),
              "bwd_weight": (problem.input_shape(), problem.output_shape())}[direction]
    operands = [random.uniform(-1, 1, s).astype("float16") for s in shapes]
    result = registry.run(problem, *operands, verify=True)
    assert result.success, result.error
    assert result.target == "TARGET", result.target
'''
FMHA = '''
import numpy
from fmha_utils import FmhaKernelConfig, FmhaProblem, FmhaRunner

p = FmhaProblem(batch=1, nhead_q=4, nhead_k=2, seqlen_q=17, seqlen_k=33, hdim_q=64, hdim_v=64)
runner = FmhaRunner(FmhaKernelConfig(data_type="fp16", gfx_arch="TARGET", hdim_q=64, hdim_v=64))
random = numpy.random.default_rng()
shapes = (p.q_shape(), p.k_shape(), p.v_shape())
q, k, v = (random.uniform(-1, 1, s).astype("float16") for s in shapes)
result = runner.run(q, k, v, p, mask_type=2, verify=True)
assert result.success, result.error
'''


# Tiles of the original's that Tessera does not have are wishes there.
THEIRS = '''
import numpy
from fmha_utils import FmhaKernelConfig, FmhaProblem, setup_fmha_dispatcher
from grouped_conv_utils import (GroupedConvKernelConfig, GroupedConvProblem, GroupedConvRegistry)

random = numpy.random.default_rng()
p = FmhaProblem(batch=1, nhead_q=2, nhead_k=2, seqlen_q=9, seqlen_k=20, hdim_q=128, hdim_v=128)
made = setup_fmha_dispatcher(FmhaKernelConfig(
    hdim_q=128, hdim_v=128, pipeline="qr", tile_m0=64, tile_n0=128, gfx_arch="TARGET"))
assert made.success, made.error
q, k, v = (random.uniform(-1, 1, s).astype("float16")
           for s in (p.q_shape(), p.k_shape(), p.v_shape()))
result = made.runner.run(q, k, v, p, verify=True)
assert result.success, result.error

registry = GroupedConvRegistry("theirs")
registry.add(GroupedConvKernelConfig(
    ndim_spatial=3, arch="TARGET", tile_m=16, tile_n=64, tile_k=128, wave_m=1, wave_n=4,
    warp_tile_m=16, warp_tile_n=16, warp_tile_k=32, pipeline="compv3"))
problem = GroupedConvProblem(N=1, C=16, K=24, G=1, Di=3, Hi=4, Wi=5, Z=2, Y=2, X=2)
result = registry.build(verbose=False)["forward", 3].run(
    *(random.uniform(-1, 1, s).astype("float16")
      for s in (problem.input_shape(), problem.weight_shape())), problem, verify=True)
assert result.success, result.error
'''


# The tests of this folder that compute, or choose what to compute, on whatever machine is here.
MODULES = ("test_arguments", "test_codegen", "test_fmha", "test_fmha_parity", "test_gemm",
           "test_gemm_names", "test_grouped_conv", "test_hints", "test_names")


@unittest.skipUnless(os.path.isfile(EMULATOR), f"there is no emulator, {EMULATOR}")
@unittest.skipUnless(shutil.which("clang++-22") and shutil.which("llvm-objdump-22"),
                     "there is no clang++-22 or no llvm-objdump-22")
class EmulatedAmd(Case):
    def emulate(self, program, target):
        self.run_there(target, "-c", program.replace("TARGET", target))

    def run_there(self, target, *words):
        settings = {"TESSERA_HIP": EMULATOR, "TESSERA_EMULATED_TARGET": target,
                    "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run([sys.executable, *words], capture_output=True, text=True,
                              env={**os.environ, **settings})
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)

    @long
    def test_all_that_computes(self):
        for target in ("gfx90a", "gfx942", "gfx950"):
            self.run_there(target, "-m", "unittest", *MODULES)

    def test_gemm(self):
        for target in ("gfx90a", "gfx942", "gfx950"):
            self.emulate(GEMM, target)

    def test_stream_k_and_groups_of_operands(self):
        self.emulate(VARIANTS, "gfx942")

    def test_convolutions(self):
        self.emulate(CONV, "gfx942")

    def test_tiles_of_the_originals(self):
        self.emulate(THEIRS, "gfx942")

    def test_attention(self):
        self.emulate(FMHA, "gfx942")
