"""Call-backs, Ctrl-C, forks, threads, and libraries that do not fit."""
import concurrent.futures
import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy

import tessera
from tessera import _abi, _interrupt, _warm
from support import ROOT, Case, random_numbers


def some_kernels(count):
    """Names of softmax kernels of the target that runs everywhere."""
    decision = tessera.select("norm kind=softmax rows=4 columns=64", target="generic")
    legal = [row["kernel"] for row in decision["considered"] if not row["refusal"]]
    more = tessera.KernelSet(target="generic").op("norm").where(kind="softmax")
    return (legal + [name for name in more.kernels if name not in legal])[:count]


def build_one(name, folder):
    """What a process of a pool does: builds a kernel into a cache of its own."""
    kernels = tessera.KernelSet("one", target="generic").add(name)
    row, = tessera.Registry("one", cache=folder).declare(kernels).build(max_workers=1)
    return row


class Callbacks(Case):
    def registry(self, folder):
        kernels = tessera.KernelSet("some", target="generic")
        for name in some_kernels(4):
            kernels.add(name)
        return tessera.Registry("r", cache=folder,
                                build={"no_shipped_packs": 1}).declare(kernels)

    def test_an_exception_ends_the_build_and_is_raised(self):
        def progress(label, done, total, what):
            raise KeyError("mine")

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(KeyError, "mine"):
                self.registry(folder).build(max_workers=1, progress=progress)

    def test_progress_must_be_a_function(self):
        self.assert_refused("progress must be a function", tessera.Registry("r").build, progress=3)

    def test_ctrl_c_ends_a_build(self):
        def progress(label, done, total, what):
            os.kill(os.getpid(), signal.SIGINT)

        with tempfile.TemporaryDirectory() as folder:
            r = self.registry(folder)
            with self.assertRaises(KeyboardInterrupt):
                r.build(max_workers=1, progress=progress)
            self.assertEqual(tessera.Registry("after").list(), [])

    def interrupted(self, call):
        """Ctrl-C after a while, in this thread's call, which takes longer than any test."""
        timer, returned = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)), []
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            returned.append(call())
            timer.join()
            time.sleep(1)  # Ctrl-C comes here, not to the next test
        self.assertEqual(returned, [])

    def test_ctrl_c_ends_a_bench(self):
        plan = tessera.Dispatcher(threads=1).plan("gemm m=64 n=64 k=64")
        a = numpy.ones((64, 64), "float32")
        self.interrupted(lambda: plan.bench(min_seconds=1000))
        self.interrupted(lambda: plan.bench(rounds=10**6, min_seconds=0.01, a=a, b=a,
                                            out=numpy.empty_like(a)))
        self.assertGreater(plan.bench(rounds=3)["gflops"], 0)

    def test_ctrl_c_ends_tuning(self):
        measured = _interrupt.measured

        def interrupted(work):
            def begin():
                signal.raise_signal(signal.SIGINT)
                return work()
            return measured(begin)

        with tempfile.TemporaryDirectory() as folder:
            d = tessera.Dispatcher(threads=1, autotune=True, autotune_seconds=1000,
                                   tuning_store=os.path.join(folder, "t.sqlite"))
            with unittest.mock.patch.object(_interrupt, "measured", interrupted):
                for call in (lambda: d.plan("gemm m=64 n=64 k=64"),
                             lambda: d.autotune("gemm m=64 n=64 k=64", seconds=1000)):
                    with self.assertRaises(KeyboardInterrupt):
                        call()

    def test_what_a_handler_raises_in_a_call_back_is_not_lost(self):
        class Mine(Exception):
            pass

        def handler(*_):
            raise Mine

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with self.assertRaises(Mine):
                _interrupt.run(lambda *_: 0, lambda _: signal.raise_signal(signal.SIGUSR1))
            self.assertIs(signal.getsignal(signal.SIGUSR1), handler)
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_seconds_have_a_bound(self):
        plan = tessera.Dispatcher(threads=1).plan("gemm m=4 n=4 k=4")
        for seconds in (float("inf"), float("nan"), 1e9):
            for call in (lambda: plan.bench(min_seconds=seconds),
                         lambda: tessera.Dispatcher(autotune_seconds=seconds),
                         lambda: tessera.Dispatcher(build={"timeout_seconds": seconds}),
                         lambda: tessera.autotune("gemm m=4 n=4 k=4", seconds=seconds)):
                self.assert_refused("seconds must be (from 0 to 86400|at least 0)", call)

    def test_the_own_error_of_the_work_is_raised(self):
        def work(callbacks):
            _abi.call("tsr_problem_parse", b"gemm m=1", ctypes.byref(ctypes.c_void_p()))

        self.assert_refused("n", _interrupt.run, None, work, code="parse_error")


class Processes(Case):
    def test_a_forked_pool_builds_eight_kernels_and_the_parent_launches(self):
        x = random_numbers().standard_normal((4, 64)).astype("float32")
        before = tessera.softmax(x)
        names = some_kernels(8)
        self.assertEqual(len(names), 8)
        with tempfile.TemporaryDirectory() as folder:
            fork = multiprocessing.get_context("fork")
            with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
                rows = list(pool.map(build_one, names, [folder] * 8))
        self.assertEqual([row["error"] for row in rows], [""] * 8)
        self.assertEqual(tessera.softmax(x).tobytes(), before.tobytes())

    def test_an_error_of_a_child_arrives_whole(self):
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            error = pool.submit(tessera.Problem, "gemm m=1").exception()
        self.assertIsInstance(error, tessera.Error)
        self.assertEqual(error.code, "parse_error")

    def test_threads_share_a_dispatcher(self):
        d = tessera.Dispatcher(threads=1)
        r = random_numbers()
        a, b = (r.standard_normal((32, 32)).astype("float32") for _ in range(2))
        wanted = tessera.matmul(a, b, dispatcher=d).tobytes()
        wrong = []

        def work():
            out = numpy.empty((32, 32), "float32")
            for _ in range(200):
                tessera.matmul(a, b, out=out, dispatcher=d)
                if out.tobytes() != wanted:
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Libraries(Case):
    def compiled(self, text, folder):
        path = os.path.join(folder, "other.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path],
                       input=text.encode(), check=True)
        return path

    def test_another_abi_number(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.compiled("int tsr_abi(void) { return 7; }", folder)
            self.assert_refused("has ABI number 7, this package needs 1", _abi.load, path,
                                code="load_failed")

    def test_the_library_is_told_where_python_lies(self):
        """Packages beside a Python whose environment is not activated may bring NVRTC."""
        text = """#include <string.h>
            char told[4096];
            int tsr_abi(void) { return 1; }
            int tsr_add_python_prefix(const char* prefix) { strcpy(told, prefix); return 0; }
            """ + "".join(f"void tsr_{name}(void) {{}}\n" for name in (
            "version", "error", "error_details", "free",
            *(f"{handle}_destroy" for handle in _abi.HANDLES)))
        with tempfile.TemporaryDirectory() as folder:
            library = _abi.load(self.compiled(text, folder))
            told = (ctypes.c_char * 4096).in_dll(library, "told").value
        self.assertEqual(os.fsdecode(told), sys.prefix)
        self.assertTrue(hasattr(_abi.library(), "tsr_add_python_prefix"))

    def test_a_library_that_is_none_of_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.compiled("int nothing;", folder)
            self.assert_refused("undefined symbol: tsr_abi", _abi.load, path, code="load_failed")

    def test_no_library(self):
        self.assert_refused("cannot be loaded", _abi.load, "/nowhere/libtessera.so",
                            code="load_failed")
        code = "import tessera; tessera.select('gemm m=1 n=1 k=1')"
        env = {**os.environ, "TESSERA_LIBRARY": "/nowhere/libtessera.so"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertIn("found at none of: /nowhere/libtessera.so", done.stderr)

    def test_importing_loads_nothing(self):
        code = ("import sys, tessera\n"
                "from tessera import _abi\n"
                "assert _abi._library is None\n"
                "others = {'numpy', 'torch', 'jax', 'cupy', 'pandas', 'ml_dtypes'}\n"
                "loaded = others & set(sys.modules)\n"
                "assert not loaded, loaded")
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_structs(self):
        options = _abi.DispatcherOptions()
        options.struct_size = 3
        self.assert_refused("struct_size must be", _abi.call, "tsr_dispatcher_create",
                            ctypes.byref(options), ctypes.byref(ctypes.c_void_p()))

    def test_null_handles(self):
        self.assert_refused("problem must not be NULL", _abi.text, "tsr_problem_line", None)
        self.assert_refused("plan must not be NULL", _abi.call, "tsr_launch", None, None, 0, None)
        self.assert_refused("tsr_problem_line", _abi.text, "tsr_problem_line", 2.5)

    def test_every_function_of_the_header_is_declared(self):
        with open(os.path.join(ROOT, "include/tessera/tessera.h"), encoding="ascii") as file:
            text = file.read()
        names = re.findall(r"TSR_API tsr_status_t (tsr_\w+)\(", text)
        by_name = {"tsr_launch_named", "tsr_range_launch_named"}
        self.assertEqual(sorted(set(names) - by_name), sorted(_abi._FUNCTIONS))
        self.assertEqual(int(re.search(r"#define TSR_ABI (\d+)", text).group(1)), _abi.ABI)
        codes = re.findall(r"^  TSR_(\w+) = \d+", text, re.MULTILINE)
        self.assertEqual(tuple(code.lower() for code in codes), _abi.CODES)

    def test_structs_have_the_fields_of_the_header(self):
        folder = os.path.join(ROOT, "include")
        structs = {"callbacks": _abi.Callbacks, "build_options": _abi.BuildOptions,
                   "dispatcher_options": _abi.DispatcherOptions,
                   "choose_options": _abi.ChooseOptions, "launch_options": _abi.LaunchOptions,
                   "bench_options": _abi.BenchOptions}
        lines = ["#include <stddef.h>", "#include <tessera/tessera.h>"]
        for name, struct in structs.items():
            kind = f"tsr_{name}_t"
            lines.append(f"_Static_assert(sizeof({kind}) == {ctypes.sizeof(struct)}, \"\");")
            for field, _ in struct._fields_:
                offset = getattr(struct, field).offset
                lines.append(f"_Static_assert(offsetof({kind}, {field}) == {offset}, \"\");")
        subprocess.run(["cc", f"-I{folder}", "-fsyntax-only", "-x", "c", "-"],
                       input="\n".join(lines).encode(), check=True)


class Slowly(Case):
    def test_ctypes_alone_takes_odd_objects_for_no_arrays(self):
        """The way of a first call then says what they are not."""
        class Raises:
            def __getattr__(self, name):
                raise RuntimeError("hostile")

        class Odd:
            __array_interface__ = {"data": (0, False)}
            dtype = numpy.dtype("float32")

        for odd in (numpy.float32, Raises(), Odd(), 3):
            self.assertIs(_warm.call_slowly({}, (odd,), ()), False, repr(type(odd)))

    def test_without_the_extension_all_is_the_same(self):
        r = random_numbers()
        a, b = r.standard_normal((9, 8)).astype("float32"), r.standard_normal((8, 7))
        b, out = b.astype("float32"), numpy.empty((9, 7), "float32")
        d = tessera.Dispatcher()
        fast, _warm.call = _warm.call, _warm.call_slowly
        try:
            for _ in range(2):
                tessera.matmul(a, b, out=out, dispatcher=d)
            self.assertEqual(len(d._table), 1)
            self.assert_refused("overlap", tessera.matmul, a[:8], a[:8], out=a[:8], dispatcher=d)
        finally:
            _warm.call = fast
        self.assertEqual(tessera.matmul(a, b, dispatcher=d).tobytes(), out.tobytes())

    def test_doctor_says_whether_the_extension_is_there(self):
        report = tessera.doctor()
        self.assertEqual(_warm.has_fast(), "ctypes" != report.facts["warm call"])
        self.assertIn("warm call", str(report))


if __name__ == "__main__":
    unittest.main()
