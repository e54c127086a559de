"""The C libraries and gpu_helper; TESSERA_CK_LIBS names the folder in which they were built."""
import ctypes
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy

from support import COMPAT, SEED, Case

import fmha_utils
from ctypes_utils import DispatcherLib, GemmRunner
from grouped_conv_utils import GroupedConvProblem
from test_grouped_conv import forward

LIBS = os.environ.get("TESSERA_CK_LIBS", "")
needs_libs = unittest.skipUnless(LIBS, "TESSERA_CK_LIBS names no folder with the libraries")


def load(name, *texts):
    """A library; the functions that are named return texts."""
    library = ctypes.CDLL(os.path.join(LIBS, f"lib{name}.so"))
    for text in texts:
        getattr(library, text).restype = ctypes.c_char_p
    return library


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


class ConvProblemC(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in (
        "N G C K input_d input_h input_w filter_z filter_y filter_x stride_d stride_h stride_w "
        "pad_d pad_h pad_w dilation_d dilation_h dilation_w direction").split()]


class ConvBwdwProblemC(ctypes.Structure):
    _fields_ = ConvProblemC._fields_[:-1]


def in_c(p, direction=None):
    fields = dict(N=p.N, G=p.G, C=p.C, K=p.K, input_d=1, input_h=p.Hi, input_w=p.Wi, filter_z=1,
                  filter_y=p.Y, filter_x=p.X, stride_d=1, stride_h=p.stride_h, stride_w=p.stride_w,
                  pad_d=0, pad_h=p.pad_h, pad_w=p.pad_w, dilation_d=1, dilation_h=p.dilation_h,
                  dilation_w=p.dilation_w)
    if direction is None:
        return ConvBwdwProblemC(**fields)
    return ConvProblemC(**fields, direction=direction)


class Header(Case):
    def test_it_is_c99(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        header = COMPAT / "bindings/ctypes/dispatcher_libs.h"
        subprocess.run([compiler, "-std=c99", "-pedantic", "-Wall", "-Werror", "-fsyntax-only",
                        "-x", "c", str(header)], check=True)


@needs_libs
class Gemm(Case):
    @classmethod
    def setUpClass(cls):
        cls.lib = load("dispatcher_gemm_lib", "dispatcher_export_registry_json",
                       "dispatcher_get_kernel_name", "dispatcher_last_error", "dispatcher_target")
        cls.lib.dispatcher_run_gemm.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [
            ctypes.POINTER(ctypes.c_float)]
        for name in ("dispatcher_is_supported", "dispatcher_select_kernel"):
            getattr(cls.lib, name).argtypes = [ctypes.c_int64] * 3 + (
                [ctypes.c_char_p, ctypes.c_int] if name.endswith("kernel") else [])

    def setUp(self):
        super().setUp()
        self.assertEqual(self.lib.dispatcher_init(), 0, self.lib.dispatcher_last_error())

    def test_a_product(self):
        m, n, k = 33, 20, 48
        a, b = self.draw(m, k, dtype="float16"), self.draw(n, k, dtype="float16")
        c, ms = numpy.zeros((m, n), "float16"), ctypes.c_float(-7)
        self.assertEqual(self.lib.dispatcher_run_gemm(at(a), at(b), at(c), m, n, k, ms), 0,
                         self.lib.dispatcher_last_error())
        self.assertGreater(ms.value, 0)
        wanted = a.astype("float64") @ b.astype("float64").T
        bound = (2.0**-11 + 52 * 2.0**-24) * (abs(a.astype("f8")) @ abs(b.astype("f8")).T)
        self.assertTrue((abs(c - wanted) <= bound + 1e-6).all(), f"seed {SEED}")

    def run_groups(self, sizes, a, b, c, ms):
        count = len(sizes)
        numbers = [(ctypes.c_int64 * count)(*column) for column in zip(*sizes)]
        arrays = [(ctypes.c_void_p * count)(*(x.ctypes.data for x in each)) for each in (a, b, c)]
        return self.lib.dispatcher_run_grouped_gemm(count, *numbers, *arrays, ctypes.byref(ms))

    def test_products_of_unequal_sizes(self):
        sizes = [(33, 20, 48), (1, 7, 9), (64, 5, 130)]
        a = [self.draw(m, k, dtype="float16") for m, _, k in sizes]
        b = [self.draw(n, k, dtype="float16") for _, n, k in sizes]
        c, ms = [numpy.zeros((m, n), "float16") for m, n, _ in sizes], ctypes.c_float(-7)
        self.assertEqual(self.run_groups(sizes, a, b, c, ms), 0, self.lib.dispatcher_last_error())
        self.assertGreater(ms.value, 0)
        for x, y, result in zip(a, b, c):
            wanted = x.astype("float64") @ y.astype("float64").T
            bound = (2.0**-11 + 134 * 2.0**-24) * (abs(x.astype("f8")) @ abs(y.astype("f8")).T)
            self.assertTrue((abs(result - wanted) <= bound + 1e-6).all(), f"seed {SEED}")

    def test_groups_that_are_refused(self):
        ones, ms = numpy.ones((4, 4), "float16"), ctypes.c_float(7)
        self.assertEqual(self.run_groups([(4, 0, 4)], [ones], [ones], [ones], ms), -1)
        self.assertEqual((ms.value, self.lib.dispatcher_last_error()),
                         (-1, b"M, N and K must be at least 1, got 4, 0 and 4"))
        self.assertEqual(self.lib.dispatcher_run_grouped_gemm(0, *[None] * 6, None), -1)
        self.assertEqual(self.lib.dispatcher_last_error(), b"count must be at least 1, got 0")
        self.assertEqual(self.lib.dispatcher_run_grouped_gemm(2, *[None] * 6, None), -1)
        self.assertEqual(self.lib.dispatcher_last_error(),
                         b"Ms, Ns, Ks, A, B and C must not be null")

    def test_return_codes(self):
        lib, ones = self.lib, numpy.ones(16, "float16")
        self.assertEqual(lib.dispatcher_initialize(), 0)  # it was done before
        self.assertEqual(lib.dispatcher_is_supported(4, 4, 4), 1)
        for size in (0, -3):
            self.assertEqual(lib.dispatcher_is_supported(4, size, 4), 0)
        self.assertEqual(lib.dispatcher_run_gemm(None, at(ones), at(ones), 4, 4, 4, None), -1)
        self.assertEqual(lib.dispatcher_last_error(), b"A, B and C must not be null")
        ms = ctypes.c_float(0)
        self.assertEqual(lib.dispatcher_run_gemm(at(ones), at(ones), at(ones), 4, 0, 4, ms), -1)
        self.assertEqual((ms.value, lib.dispatcher_last_error()),
                         (-1, b"M, N and K must be at least 1, got 4, 0 and 4"))

    def test_a_size_without_a_kernel(self):
        ones, ms = numpy.ones(16, "float16"), ctypes.c_float(0)
        self.assertEqual(self.lib.dispatcher_run_gemm(at(ones), at(ones), at(ones), 2**40, 2**40,
                                                      2**40, ms), -2)
        self.assertEqual(ms.value, -1)
        self.assertEqual(self.lib.dispatcher_is_supported(2**40, 2**40, 2**40), 0)

    def test_what_fails_otherwise(self):
        """-2 is for a kernel that is not there; a compiler that is not is an error."""
        program = ("import ctypes, sys\n"
                   "lib = ctypes.CDLL(sys.argv[1]); lib.dispatcher_init()\n"
                   "ones, ms = (ctypes.c_uint16 * 16)(), ctypes.c_float(7)\n"
                   "size = ctypes.c_int64(4)\n"
                   "print(lib.dispatcher_run_gemm(ones, ones, ones, size, size, size,"
                   " ctypes.byref(ms)), ms.value)\n")
        for given, wanted in (({"TESSERA_NO_JIT": "1"}, ["-2", "-1.0"]),
                              ({"TESSERA_CXX": "/nowhere/c++"}, ["-1", "7.0"])):
            with tempfile.TemporaryDirectory() as cache:
                found = subprocess.run(
                    [sys.executable, "-c", program,
                     os.path.join(LIBS, "libdispatcher_gemm_lib.so")], capture_output=True,
                    text=True, env={**os.environ, "TESSERA_CACHE_DIR": cache, "TESSERA_PACK": cache,
                                    "TESSERA_TARGET": "generic", **given})
            self.assertEqual(found.stdout.split(), wanted, found.stderr)

    def test_a_second_call_chooses_nothing(self):
        lib, ones, out = self.lib, numpy.ones(16, "float16"), numpy.zeros(16, "float16")
        name = ctypes.create_string_buffer(300)
        lib.dispatcher_cleanup()
        self.assertEqual(lib.dispatcher_init(), 0)
        calls = {"choosing": lambda: lib.dispatcher_select_kernel(4, 4, 4, name, 300) == 0,
                 "asking": lambda: lib.dispatcher_is_supported(4, 4, 4) == 1,
                 "running": lambda: lib.dispatcher_run_gemm(at(ones), at(ones), at(out), 4, 4, 4,
                                                            None) == 0}
        taken = {key: [] for key in calls}
        for _ in range(6):
            for key, call in calls.items():
                started = time.perf_counter()
                self.assertTrue(call(), lib.dispatcher_last_error())
                taken[key].append(time.perf_counter() - started)
        for key, seconds in taken.items():
            self.assertLess(min(seconds[1:]), taken["choosing"][0] / 3, key)
        self.assertTrue((out == 4).all())

    def test_names(self):
        lib, name = self.lib, ctypes.create_string_buffer(300)
        self.assertEqual(lib.dispatcher_select_kernel(64, 64, 64, name, 300), 0)
        self.assertTrue(name.value.startswith(b"gemm_fp16_rcr_"))
        self.assertEqual(lib.dispatcher_select_kernel(64, 64, 64, name, 5), -1)
        self.assertIn(b"a buffer of 5 bytes has no room", lib.dispatcher_last_error())
        count = lib.dispatcher_get_kernel_count()
        names = []
        for i in range(count):
            self.assertEqual(lib.dispatcher_get_kernel_name_at(i, name, 300), 0)
            names.append(name.value.decode())
        for index in (count, -1):
            self.assertEqual(lib.dispatcher_get_kernel_name_at(index, name, 300), -1)
            self.assertEqual(lib.dispatcher_last_error().decode(), "the number of a kernel must be "
                             f"from 0 to {count - 1}, got {index}")
        self.assertEqual(lib.dispatcher_get_kernel_name().decode(), names[0])
        whole = json.loads(lib.dispatcher_export_registry_json())
        self.assertEqual([row["identifier"] for row in whole["kernels"]], names)
        self.assertEqual(whole["metadata"]["total_kernels"], count)
        shapes = [ctypes.c_int() for _ in range(9)]
        self.assertEqual(lib.dispatcher_get_kernel_config(*map(ctypes.byref, shapes)), 0)
        self.assertEqual(lib.dispatcher_get_kernel_config(*[None] * 9), -1)
        self.assertEqual(lib.dispatcher_last_error(),
                         b"the nine places of the shapes must not be null")
        row = whole["kernels"][0]["algorithm"]
        self.assertEqual([shape.value for shape in shapes],
                         [row[key][axis] for key in ("tile_shape", "warp_tile_shape", "wave_shape")
                          for axis in "mnk"])

    def test_nothing_works_before_it_is_initialised(self):
        self.lib.dispatcher_cleanup()
        ones = numpy.ones(16, "float16")
        self.assertEqual(self.lib.dispatcher_is_supported(4, 4, 4), 0)
        self.assertEqual(self.lib.dispatcher_get_kernel_count(), 0)
        self.assertEqual(self.lib.dispatcher_run_gemm(at(ones), at(ones), at(ones), 4, 4, 4, None),
                         -1)
        self.assertEqual(self.lib.dispatcher_last_error(), b"dispatcher_init() was not called")

    def test_python_loads_it(self):
        place = pathlib.Path(LIBS) / "libdispatcher_gemm_lib.so"
        lib = DispatcherLib.load(place)
        self.assertEqual((lib.path, lib.config.layout, lib.config.dtype_c),
                         (place, "rcr", "fp16"))
        self.assertIn(f"target {lib.target.name} ", self.lib.dispatcher_target().decode())
        a, b = self.draw(24, 64, dtype="float16"), self.draw(64, 40, dtype="float16")
        done = GemmRunner(lib).run(a, b, verify=True)
        self.assertTrue(done.verified, f"{done.error}, seed {SEED}")
        self.assertEqual(done.kernel_name, lib.select_kernel(24, 40, 64))
        self.assertIn("no D tensors", GemmRunner(lib).run(a, b, D=[a]).error)
        self.assertIsNone(lib.select_kernel(0, 40, 64))


@needs_libs
class Conv(Case):
    @classmethod
    def setUpClass(cls):
        cls.lib = load("dispatcher_conv_lib", "conv_dispatcher_version",
                       "conv_dispatcher_last_error", "conv_dispatcher_target")
        cls.lib.conv_dispatcher_run.restype = ctypes.c_float
        cls.bwdw = load("dispatcher_conv_bwdw_lib", "conv_bwdw_version", "conv_bwdw_last_error")
        cls.bwdw.conv_bwdw_run.restype = ctypes.c_float

    def setUp(self):
        super().setUp()
        self.assertEqual(self.lib.conv_dispatcher_init(), 0)
        self.assertEqual(self.bwdw.conv_bwdw_init(), 0)
        self.p = GroupedConvProblem(N=2, C=8, K=12, G=2, Hi=7, Wi=6, pad_h=1, pad_w=1, stride_h=2)
        self.x = self.draw(*self.p.input_shape(), dtype="float16")
        self.w = self.draw(*self.p.weight_shape(), dtype="float16")

    def run_conv(self, direction, a, b, out):
        problem = in_c(self.p, direction)
        return self.lib.conv_dispatcher_run(at(a), at(b), at(out), ctypes.byref(problem), None)

    def test_every_direction(self):
        p = self.p
        y, dx, dw = (numpy.zeros(shape, "float16")
                     for shape in (p.output_shape(), p.input_shape(), p.weight_shape()))
        self.assertGreater(self.run_conv(0, self.x, self.w, y), 0,
                           self.lib.conv_dispatcher_last_error())
        exact = forward(self.x, self.w, p)
        numpy.testing.assert_allclose(y.astype("f8"), exact, rtol=2e-3, atol=2e-2)
        dy = self.draw(*p.output_shape(), dtype="float16")
        self.assertGreater(self.run_conv(1, dy, self.w, dx), 0)
        self.assertGreater(self.run_conv(2, self.x, dy, dw), 0)
        again = numpy.zeros_like(dw)
        ms = self.bwdw.conv_bwdw_run(at(self.x), at(dy), at(again), ctypes.byref(in_c(p)), None)
        self.assertGreater(ms, 0, self.bwdw.conv_bwdw_last_error())
        numpy.testing.assert_allclose(again.astype("f8"), dw.astype("f8"), rtol=2e-3, atol=2e-2)
        wanted = float((dy.astype("f8") * exact).sum())
        for grad, other in ((dx, self.x), (dw, self.w)):
            got = float((grad.astype("f8") * other.astype("f8")).sum())
            size = float(abs(grad.astype("f8") * other.astype("f8")).sum())
            self.assertAlmostEqual(got, wanted, delta=2.0**-10 * size, msg=f"seed {SEED}")

    def test_return_codes(self):
        y = numpy.zeros(self.p.output_shape(), "float16")
        self.assertEqual(self.run_conv(7, self.x, self.w, y), -3)
        self.assertEqual(self.lib.conv_dispatcher_last_error(),
                         b"direction must be 0, 1 or 2, got 7")
        problem = in_c(self.p, 0)
        problem.K = 13
        self.assertEqual(self.lib.conv_dispatcher_run(at(self.x), at(self.w), at(y),
                                                      ctypes.byref(problem), None), -3)
        self.assertEqual(self.lib.conv_dispatcher_is_supported(ctypes.byref(problem)), 0)
        for field in ("input_d", "filter_z", "pad_d"):
            problem = in_c(self.p, 0)
            setattr(problem, field, -3)
            self.assertEqual(self.lib.conv_dispatcher_is_supported(ctypes.byref(problem)), 0, field)
            self.assertIn(b"got -3", self.lib.conv_dispatcher_last_error())
        self.assertEqual(self.lib.conv_dispatcher_run(None, at(self.w), at(y),
                                                      ctypes.byref(in_c(self.p, 0)), None), -1)
        self.assertEqual(self.lib.conv_dispatcher_run(at(self.x), at(self.w), at(y), None, None),
                         -1)

    def test_no_kernel(self):
        """A machine whose row has no convolutions; a process of its own asks for it."""
        program = ("import ctypes, sys; sys.path.insert(0, sys.argv[2])\n"
                   "from test_c_libs import in_c, GroupedConvProblem\n"
                   "lib = ctypes.CDLL(sys.argv[1]); lib.conv_dispatcher_init()\n"
                   "p = in_c(GroupedConvProblem(C=8, K=8), 0)\n"
                   "print(lib.conv_dispatcher_is_supported(ctypes.byref(p)),"
                   " lib.conv_dispatcher_get_kernel_count())\n")
        from tessera_ck import targets
        if targets.pipelines(targets.resolve("gfx90a"), "conv"):
            self.skipTest("gfx90a has convolutions")
        found = subprocess.run(
            [sys.executable, "-c", program, os.path.join(LIBS, "libdispatcher_conv_lib.so"),
             str(pathlib.Path(__file__).parent)], capture_output=True, text=True,
            env={**os.environ, "TESSERA_TARGET": "gfx90a"})
        self.assertEqual(found.stdout.split(), ["0", "0"], found.stderr)

    def test_names_and_counts(self):
        lib, name = self.lib, ctypes.create_string_buffer(300)
        self.assertEqual((lib.conv_dispatcher_version(), self.bwdw.conv_bwdw_version()),
                         (b"1.0.0", b"1.0.0"))
        self.assertEqual((lib.conv_dispatcher_has_kernels(), lib.conv_dispatcher_has_bwd_data(),
                          lib.conv_dispatcher_has_bwd_weight(),
                          self.bwdw.conv_bwdw_has_kernels()), (1, 1, 1, 1))
        problem = ctypes.byref(in_c(self.p, 1))
        self.assertEqual(lib.conv_dispatcher_select_kernel(problem, name, 300), 0)
        self.assertTrue(name.value.startswith(b"conv_backwarddata_fp16_"))
        self.assertEqual(lib.conv_dispatcher_select_kernel(problem, name, 3), -1)
        self.assertEqual(lib.conv_dispatcher_get_kernel_name(0, name, 300), 0)
        self.assertEqual(lib.conv_dispatcher_get_kernel_name(10**6, name, 300), -1)
        self.assertIn(b", got 1000000", lib.conv_dispatcher_last_error())
        self.assertEqual(lib.conv_dispatcher_cleanup(), 0)
        self.assertEqual(lib.conv_dispatcher_get_kernel_count(), 0)
        self.bwdw.conv_bwdw_cleanup()
        self.assertEqual(self.bwdw.conv_bwdw_get_kernel_count(), 0)


@needs_libs
class Fmha(Case):
    @classmethod
    def setUpClass(cls):
        cls.lib = load("dispatcher_fmha_lib", "fmha_dispatcher_last_error",
                       "fmha_dispatcher_target")

    def setUp(self):
        super().setUp()
        self.assertEqual(self.lib.fmha_dispatcher_initialize(None), 0)
        self.p = fmha_utils.FmhaProblem(2, 4, 2, 6, 19, 16, 16)
        p = self.p
        self.q, self.k, self.v = (self.draw(*shape, dtype="float16")
                                  for shape in (p.q_shape(), p.k_shape(), p.v_shape()))
        self.out, self.ms = numpy.zeros(p.o_shape(), "float16"), ctypes.c_float(-1)
        self.sizes = (p.batch, p.nhead_q, p.nhead_k, p.seqlen_q, p.seqlen_k, p.hdim_q, p.hdim_v)

    def call(self, name, *arguments):
        words = [ctypes.c_float(x) if isinstance(x, float) else at(x)
                 if isinstance(x, numpy.ndarray) else x for x in arguments]
        return getattr(self.lib, f"fmha_dispatcher_{name}")(*words, ctypes.byref(self.ms))

    def near(self, got, wanted, rtol=2e-3, atol=4e-3):
        ok, largest, _ = fmha_utils.FmhaValidator(rtol, atol).check(got, wanted)
        self.assertTrue(ok, f"{largest}, seed {SEED}")
        self.assertGreaterEqual(self.ms.value, 0)

    def fwd(self, mask=0, bias=0, lse=0, dropout=0, perm=1, groups=0, window=(-1, -1), logits=0,
            sink=0, skip=0, q=None, k=None, v=None, out=None):
        pick = lambda given, own: own if given is None else given  # noqa: E731
        return self.call("run_fwd", pick(q, self.q), pick(k, self.k), pick(v, self.v),
                         pick(out, self.out), *self.sizes, self.p.scale, mask, bias, lse, dropout,
                         16, 16, 1, perm, b"fp16", groups, *window, logits, sink, skip)

    def reference(self, mask=0):
        return fmha_utils.cpu_attention_fwd(self.q, self.k, self.v, self.p.scale, mask)

    def test_forward(self):
        for mask in (0, 1, 2):
            self.assertEqual(self.fwd(mask, bias=1, lse=1), 0,
                             self.lib.fmha_dispatcher_last_error())
            self.near(self.out, self.reference(mask))
        self.assertEqual(self.fwd(3, bias=2, window=(4, 0), logits=1, sink=1, skip=1, dropout=1), 0,
                         self.lib.fmha_dispatcher_last_error())

    def test_other_orders_of_dimensions(self):
        q, k, v = (numpy.ascontiguousarray(x.transpose(0, 2, 1, 3))
                   for x in (self.q, self.k, self.v))
        out = numpy.zeros((2, 6, 4, 16), "float16")
        for groups in (0, 1):  # equal sequences one behind the other lie as a batch does
            out[:] = 0
            self.assertEqual(self.fwd(2, perm=0, groups=groups, q=q, k=k, v=v, out=out), 0,
                             self.lib.fmha_dispatcher_last_error())
            self.near(out.transpose(0, 2, 1, 3), self.reference(2))

    def test_groups_with_heads_outside_of_tokens(self):
        p = self.p
        grouped = lambda x: numpy.ascontiguousarray(x.transpose(1, 0, 2, 3))  # noqa: E731
        apart = lambda x, shape: x.reshape(  # noqa: E731
            shape[1], shape[0], *shape[2:]).transpose(1, 0, 2, 3)
        q, k, v = map(grouped, (self.q, self.k, self.v))
        self.assertEqual(self.fwd(2, groups=1, q=q, k=k, v=v), 0,
                         self.lib.fmha_dispatcher_last_error())
        self.near(apart(self.out, p.o_shape()), self.reference(2))
        for paged in (0, 1):
            self.assertEqual(self.call("run_splitkv", q, k, v, self.out, *self.sizes, p.scale, 2, 3,
                                       1, b"fp16", 0, 1, 1, 0, 0, 0, paged, 8, -1, -1), 0,
                             self.lib.fmha_dispatcher_last_error())
            self.near(apart(self.out, p.o_shape()), self.reference(2))
        given = self.q, self.k, self.v, p.scale
        out, weights = fmha_utils.cpu_attention_fwd_with_intermediates(*given)
        lse = fmha_utils.cpu_attention_lse(*given)
        grad = self.draw(*p.o_shape(), dtype="float16")
        results = [numpy.zeros(x.shape, "float16") for x in (q, k, v)]
        self.assertEqual(self.call(
            "run_bwd", q, k, v, grouped(out.astype("float16")),
            numpy.ascontiguousarray(lse.astype("float32").transpose(1, 0, 2)), grouped(grad),
            *results, *self.sizes, p.scale, b"fp16", 0, 0, 0, 0, 1, 1, 0, 0), 0,
            self.lib.fmha_dispatcher_last_error())
        wanted = fmha_utils.cpu_attention_bwd(self.q, self.k, self.v, out, grad, weights, p.scale)
        for got, exact, shape in zip(results, wanted, (p.q_shape(), p.k_shape(), p.v_shape())):
            self.near(apart(got, shape), exact, 1e-2, 1e-2)

    def test_parts_and_pages(self):
        for paged in (0, 1):
            self.assertEqual(self.call("run_splitkv", self.q, self.k, self.v, self.out, *self.sizes,
                                       self.p.scale, 2, 3, 1, b"fp16", 1, 0, 1, 0, 0, 0, paged, 8,
                                       -1, -1), 0, self.lib.fmha_dispatcher_last_error())
            self.near(self.out, self.reference(2))
        for page in (8, 0):
            self.assertEqual(self.call("run_pagedkv", self.q, self.k, self.v, self.out, *self.sizes,
                                       self.p.scale, 1, page, 1, b"fp16", 0, 0, 0, 0, 0), 0,
                             self.lib.fmha_dispatcher_last_error())
            self.near(self.out, self.reference(1))

    def test_batch_prefill(self):
        q, k, v = (numpy.ascontiguousarray(x.transpose(0, 2, 1, 3))
                   for x in (self.q, self.k, self.v))
        for layout in (0, 1):
            for lookup in (0, 1):
                out = numpy.zeros((2, 6, 4, 16), "float16")
                self.assertEqual(self.call(
                    "run_batch_prefill", q, k, v, out, *self.sizes, self.p.scale, 2, 0, 8, layout,
                    lookup, 1, b"fp16", 0, 0, 0, 0, 0, 0, 1, None, None, None), 0,
                    self.lib.fmha_dispatcher_last_error())
                self.near(out.transpose(0, 2, 1, 3), self.reference(2))

    def test_appending(self):
        for rope in (0, 1, 2):
            self.assertEqual(self.call("run_appendkv", self.q, self.k[:, :, :6].copy(),
                                       self.v[:, :, :6].copy(), 2, 4, 2, 6, 6, 16, 16, 1, rope, 0,
                                       0, b"fp16"), 0, self.lib.fmha_dispatcher_last_error())

    def test_gradients(self):
        p = self.p
        given = self.q, self.k, self.v, p.scale
        out, weights = fmha_utils.cpu_attention_fwd_with_intermediates(*given)
        lse = fmha_utils.cpu_attention_lse(*given)
        grad = self.draw(*p.o_shape(), dtype="float16")
        results = [numpy.zeros(shape, "float16")
                   for shape in (p.q_shape(), p.k_shape(), p.v_shape())]
        self.assertEqual(self.call(
            "run_bwd", self.q, self.k, self.v, out.astype("float16"), lse.astype("float32"), grad,
            *results, *self.sizes, p.scale, b"fp16", 0, 0, 0, 0, 1, 0, 0, 0), 0,
            self.lib.fmha_dispatcher_last_error())
        wanted = fmha_utils.cpu_attention_bwd(self.q, self.k, self.v, out, grad, weights, p.scale)
        for got, exact in zip(results, wanted):
            self.near(got, exact, 1e-2, 1e-2)

    def test_return_codes(self):
        self.assertEqual(self.fwd(9), -2)
        self.assertIn(b"unknown mask_type '9'", self.lib.fmha_dispatcher_last_error())
        self.assertEqual(self.fwd(0, bias=-7), -2)
        self.assertIn(b"unknown bias_type '-7'", self.lib.fmha_dispatcher_last_error())
        sizes = (1, 2**30, 1, 2**10, 1, 16, 16)  # lse alone would be 4 TiB
        self.assertEqual(self.call("run_fwd", self.q, self.k, self.v, self.out, *sizes, 1.0, 0, 0,
                                   1, 0, 16, 16, 1, 1, b"fp16", 0, -1, -1, 0, 0, 0), -1)
        self.assertEqual(self.lib.fmha_dispatcher_last_error(), b"there is not enough memory for a "
                         b"problem of these sizes; give smaller ones")
        null = ctypes.c_void_p(None)
        self.assertEqual(self.fwd(0, q=null), -1)
        self.assertGreater(self.lib.fmha_dispatcher_kernel_count(), 0)
        self.lib.fmha_dispatcher_cleanup()
        self.assertEqual(self.fwd(0), -1)
        self.assertEqual(self.lib.fmha_dispatcher_initialize(b"gfx1"), -1)
        self.assertIn(b"unknown target 'gfx1'", self.lib.fmha_dispatcher_last_error())


@needs_libs
class GpuHelper(Case):
    def run_helper(self, *words, **env):
        return subprocess.run([os.path.join(LIBS, "gpu_helper"), *words], capture_output=True,
                              text=True, env={**os.environ, **env})

    def test_the_documented_json(self):
        found = self.run_helper("64", "48", "100", "--validate")
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        whole = json.loads(found.stdout)
        self.assertEqual(whole["problem"], {"M": 64, "N": 48, "K": 100})
        self.assertEqual(whole["status"], "success")
        self.assertEqual(whole["validation"], {"accuracy": 100, "max_error": 0,
                                               "correct_elements": 3072, "total_elements": 3072})
        self.assertEqual(whole["kernel"], whole["selected_kernel"])
        time = whole["execution"]["time_ms"]
        self.assertTrue(math.isclose(whole["execution"]["tflops"], 2 * 64 * 48 * 100 / time / 1e9,
                                     rel_tol=1e-4))
        self.assertNotIn("validation", json.loads(self.run_helper("8", "8", "8").stdout))

    def test_refusals(self):
        for words in ((), ("1", "2"), ("1", "2", "x"), ("1", "2", "3", "--fast")):
            found = self.run_helper(*words)
            self.assertEqual((found.returncode, found.stdout, found.stderr),
                             (1, "", "usage: gpu_helper M N K [--validate]\n"))
        found = self.run_helper("8", "0", "8")
        self.assertEqual((found.returncode, json.loads(found.stdout)),
                         (1, {"error": "No kernel selected"}))
        self.assertIn("must be at least 1, got 8, 0 and 8", found.stderr)

    def test_no_memory(self):
        found = self.run_helper("1000000", "1000000", "1000000")
        self.assertEqual((found.returncode, json.loads(found.stdout)["error"]), (
            1, "there is not enough memory for matrices of these sizes; give smaller ones"))

    def test_a_wrong_result(self):
        """A driver plays a GPU that runs no kernel."""
        driver = os.environ.get("TESSERA_FAKE_CUDA", "")
        if not driver:
            self.skipTest("TESSERA_FAKE_CUDA names no driver")
        found = self.run_helper("128", "128", "64", "--validate", TESSERA_CUDA_DRIVER=driver)
        self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
        whole = json.loads(found.stdout)
        self.assertEqual(whole["target"], "target sm90a (this machine's GPU)")
        self.assertEqual(whole["status"], "failure")

    def test_a_machine_that_is_not_here(self):
        from tessera_ck import targets
        if not targets.why_not_here(targets.resolve("gfx942")):
            self.skipTest("this machine has a gfx942")
        found = self.run_helper("8", "8", "8", TESSERA_TARGET="gfx942")
        self.assertEqual(found.returncode, 1)
        self.assertRegex(json.loads(found.stdout)["error"], "^target 'gfx942' ")


if __name__ == "__main__":
    unittest.main()
