"""Problems, dispatchers, plans, kernel sets, registries and models."""
import copy
import json
import os
import pickle
import random
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy

import tessera
from tessera import _abi
from support import ROOT, Case, needs, random_numbers


def one_kernel(kind):
    """The name of some kernel of the target that runs everywhere."""
    problem = f"norm kind={kind} rows=4 columns=64"
    return tessera.select(problem, target="generic")["kernel"]


class Problems(Case):
    def test_line_and_fields(self):
        line = "gemm m=8 n=4 k=16 dtype=bf16 epilogue=bias+gelu"
        p = tessera.Problem(line)
        self.assertEqual(p.line, line)
        self.assertEqual(p, tessera.Problem("gemm", m=8, n=4, k=16, dtype="bf16",
                                            epilogue="bias+gelu"))
        self.assertEqual(hash(p), hash(pickle.loads(pickle.dumps(p))))
        self.assertEqual(tessera.Problem.from_json(p.to_json()), p)
        self.assertEqual(tessera.Problem.from_json(json.loads(p.to_json())), p)
        self.assertEqual((p.get("k"), p.op, p.flops), ("16", "gemm", 2 * 8 * 4 * 16))

    def test_numbers_and_types(self):
        p = tessera.Problem("gemm", m=numpy.int64(3), n=2, k=1, a=numpy.float16, b=numpy.float16,
                            alpha=numpy.float32(0.5), preshuffle=True)
        self.assertEqual(p.line, "gemm m=3 n=2 k=1 dtype=fp16 alpha=0.5 preshuffle=1")

    def test_operands(self):
        names = [(o.name, o.access, o.shape, o.strides) for o in
                 tessera.Problem("gemm m=8 n=3 k=7 batch=2 layout=rrr").operands]
        self.assertEqual(names, [("a", "read", (2, 8, 7), (56, 7, 1)),
                                 ("b", "read", (2, 7, 3), (21, 3, 1)),
                                 ("out", "write", (2, 8, 3), (24, 3, 1))])

    def test_refusals(self):
        self.assert_refused("m must be at least 0, got -1", tessera.Problem, "gemm m=-1 n=1 k=1")
        self.assert_refused("got int", tessera.Problem, 3)
        self.assert_refused("alpha must be finite, got nan", tessera.Problem, "gemm", m=1, n=1, k=1,
                            alpha=float("nan"))
        self.assert_refused("below 2.63", tessera.Problem, "gemm", m=2**63, n=1, k=1)
        self.assert_refused("zero byte", tessera.Problem, "gemm m=1\0")
        self.assert_refused("gelo", tessera.Problem, "gemm m=1 n=1 k=1 epilogue=gelo",
                            code="parse_error")
        self.assert_refused("unknown key 'm' for conv", tessera.Problem, "conv", m=1,
                            code="parse_error")
        self.assert_refused("unknown key 'b' for fmha", tessera.Problem, "fmha", b=1,
                            code="parse_error")


class Dispatchers(Case):
    def test_select_needs_no_such_machine(self):
        decision = tessera.select("gemm m=64 n=64 k=64 dtype=bf16", target="sm90a")
        self.assertEqual(decision["target"], "sm90a")
        self.assertTrue(decision["kernel"].endswith("_sm90a"))
        self.assertEqual(decision["considered"][0]["kernel"], decision["kernel"])

    def test_explanation(self):
        e = tessera.explain("gemm", m=64, n=64, k=64)
        self.assertIn(f"chosen    {e.kernel}", str(e))
        self.assertEqual(str(e), repr(e))
        self.assertIn(f"<code>{e.kernel}</code>", e._repr_html_())
        more = tessera.explain("gemm m=64 n=64 k=64", everything=True)
        self.assertGreater(len(str(more)), len(str(e)))

    def test_force(self):
        kernel = tessera.select("gemm m=64 n=64 k=64")["considered"][1]["kernel"]
        d = tessera.Dispatcher()
        self.assertEqual(d.select("gemm m=64 n=64 k=64", force=kernel)["kernel"], kernel)
        self.assert_refused("nonsense", d.plan, "gemm m=64 n=64 k=64", force="nonsense",
                            code="not_found")

    def test_options(self):
        self.assert_refused("nowhere", tessera.Dispatcher, "nowhere", code="not_found")
        self.assert_refused("threads must be at least 0, got -1", tessera.Dispatcher, threads=-1)
        self.assert_refused("pool must be a Registry", tessera.Dispatcher, pool=3)
        self.assert_refused("threads must be a whole number, got 'x'",
                            tessera.Dispatcher, threads="x")
        self.assert_refused("build has no field 'jobs'", tessera.Dispatcher, build={"jobs": 3},
                            code="not_found")

    def test_pool_limits_the_choice(self):
        kernels = tessera.KernelSet("one").for_problem("gemm m=64 n=64 k=64", best=1)
        registry = tessera.Registry("pool").declare(kernels)
        d = tessera.Dispatcher(pool=registry)
        self.assertEqual(d.select("gemm m=64 n=64 k=64")["kernel"], kernels.kernels[0])

    def test_run_by_name(self):
        x = random_numbers().standard_normal((4, 64)).astype("float32")
        y = tessera.run("norm kind=softmax rows=4 columns=64", **{"in": x}, verify=True)
        self.assertEqual(y.tobytes(), tessera.softmax(x).tobytes())
        self.assert_refused("has no operand 'x'; it has in, out", tessera.run,
                            "norm kind=softmax rows=4 columns=64", x=x, code="not_found")
        self.assert_refused("in must have the shape .4, 64.", tessera.run,
                            "norm kind=softmax rows=4 columns=64", **{"in": x[:3]})

    def test_gemm(self):
        r = random_numbers()
        a, b, bias = (r.standard_normal(s).astype("float32") for s in ((8, 16), (4, 16), (4,)))
        wanted = tessera.matmul(a, b.T, bias=bias, activation="relu")
        got = tessera.gemm(m=8, n=4, k=16, epilogue="bias+relu", a=a, b=b, d0=bias)
        self.assertEqual(got.tobytes(), wanted.tobytes())
        got = tessera.gemm("gemm m=8 n=4 k=16 epilogue=bias+relu", a=a, b=b.T, d0=bias)
        self.assertEqual(got.tobytes(), wanted.tobytes())
        self.assert_refused("operation gemm", tessera.gemm, "norm kind=softmax rows=1 columns=1",
                            a=a, b=b)

    def test_pointer_arrays(self):
        r = random_numbers()
        a, b = ([r.standard_normal((4, 5)).astype("float32") for _ in range(3)] for _ in range(2))
        out = [numpy.zeros((4, 4), "float32") for _ in range(3)]
        tessera.gemm("gemm m=4 n=4 k=5 batch=3 pointer_arrays=1", a=a, b=b, out=out)
        for i in range(3):
            numpy.testing.assert_allclose(out[i], a[i] @ b[i].T, rtol=0, atol=2.0**-16)


class Plans(Case):
    def setUp(self):
        self.d = tessera.Dispatcher(threads=1)
        self.p = self.d.plan("gemm m=8 n=8 k=8 layout=rrr")
        self.a = random_numbers().standard_normal((8, 8)).astype("float32")

    def test_launch(self):
        out = numpy.zeros((8, 8), "float32")
        for _ in range(2):
            out[:] = 0
            self.p.launch(a=self.a, b=self.a, out=out)
            numpy.testing.assert_allclose(out, self.a @ self.a, rtol=0, atol=2.0**-15)
        memory = numpy.zeros(self.p.workspace_bytes + 64, "int8")
        memory = memory[-memory.ctypes.data % 64:]
        self.p.launch(a=self.a, b=self.a, out=out, verify=True, workspace=memory)
        self.assertEqual(self.p.kernel, self.p.info()["kernel"])

    def test_refusals(self):
        out = numpy.zeros((8, 8), "float32")
        self.assert_refused("needs the operand b", self.p.launch, a=self.a, out=out)
        self.assert_refused("no operand 'x'", self.p.launch, a=self.a, b=self.a, out=out, x=1,
                            code="not_found")
        self.assert_refused("a must have the type float32, got float16", self.p.launch,
                            a=self.a.astype("float16"), b=self.a, out=out)
        self.assert_refused("overlap", self.p.launch, a=self.a, b=self.a, out=self.a)

    def test_workspaces_that_no_kernel_may_fill(self):
        """A kernel writes all bytes from the first one on."""
        plan = self.d.plan("gemm m=200 n=200 k=200")
        a, out = numpy.ones((200, 200), "float32"), numpy.zeros((200, 200), "float32")
        size = -(-plan.workspace_bytes // 64) * 64
        self.assertGreater(size, 0)
        memory = numpy.full(4 * size + 64, 7, "int8")
        memory = memory[-memory.ctypes.data % 64:][:4 * size]
        frozen = memory.view()
        frozen.flags.writeable = False
        wrong = {"read-only": frozen, "without gaps": memory[::2], "ascending": memory[size::-1],
                 "read-only, but": numpy.broadcast_to(memory[:1], (size,))}
        for sentence, workspace in wrong.items():
            self.assert_refused(sentence, plan.launch, a=a, b=a, out=out, workspace=workspace)
        self.assertTrue((memory == 7).all() and (out == 0).all())
        plan.launch(a=a, b=a, out=out, workspace=memory.reshape(2, -1))
        self.assertTrue((out == 200).all())

    def test_use_after_close(self):
        out = numpy.zeros((8, 8), "float32")
        self.p.launch(a=self.a, b=self.a, out=out)
        self.p.close()
        self.p.close()
        self.assert_refused("the plan was closed", self.p.launch, a=self.a, b=self.a, out=out)
        self.d.close()
        self.assert_refused("the dispatcher was closed", self.d.select, "gemm m=1 n=1 k=1")

    def test_a_plan_outlives_its_dispatcher(self):
        out = numpy.zeros((8, 8), "float32")
        self.d.close()
        self.p.launch(a=self.a, b=self.a, out=out)
        self.assertTrue(out.any())

    @needs("tsr_bench")
    def test_bench(self):
        result = self.p.bench(rounds=3, min_seconds=1e-4)
        self.assertEqual(len(result["seconds"]), 3)
        self.assertGreater(result["median_seconds"], 0)
        out = numpy.zeros((8, 8), "float32")
        self.assertGreater(self.p.bench(rounds=3, a=self.a, b=self.a, out=out)["gflops"], 0)

    @needs("tsr_verify")
    def test_verify(self):
        self.p.verify(seed=7)


class Closing(Case):
    """An object that is closed while another thread is in a call of it."""

    def closed_during(self, make, work):
        """Threads that call work(object) until it is closed; all must end with that sentence."""
        for _ in range(8):
            made, ends, began = make(), [], threading.Barrier(4)

            def calls():
                began.wait()
                try:
                    while True:
                        work(made)
                except tessera.Error as error:
                    ends.append(str(error).rpartition(": ")[2])

            threads = [threading.Thread(target=calls) for _ in range(3)]
            for thread in threads:
                thread.start()
            began.wait()
            time.sleep(random.random() * 0.01)
            made.close()
            for thread in threads:
                thread.join()
            text = f"the {made._kind} was closed, and cannot be used any more"
            self.assertEqual(ends, [text] * 3)

    def test_a_dispatcher_is_closed_while_threads_choose(self):
        self.closed_during(lambda: tessera.Dispatcher(threads=1),
                           lambda d: d.select("gemm m=64 n=64 k=64"))

    def test_a_dispatcher_is_closed_while_threads_multiply(self):
        a = numpy.ones((8, 8), "float32")
        self.closed_during(lambda: tessera.Dispatcher(threads=1),
                           lambda d: tessera.matmul(a, a, dispatcher=d))

    def test_a_plan_is_closed_while_threads_launch(self):
        d = tessera.Dispatcher(threads=1)
        a = numpy.ones((64, 64), "float32")
        self.closed_during(lambda: d.plan("gemm m=64 n=64 k=64"),
                           lambda p: p.launch(a=a, b=a, out=numpy.empty_like(a)))

    def test_other_objects_are_closed_while_threads_use_them(self):
        kernels = tessera.KernelSet("k", target="avx2").preselected("fp32_rcr_essential")
        self.closed_during(lambda: tessera.Registry("r").declare(kernels), lambda r: r.filter("*"))
        self.closed_during(lambda: tessera.KernelSet("k", target="avx2"),
                           lambda k: k.preselected("fp32_rcr_essential").to_json())
        self.closed_during(lambda: tessera.Problem("gemm m=64 n=64 k=64"), lambda p: p.to_json())

    def test_destroyed_when_the_last_call_has_returned(self):
        events, destroy = [], _abi.Owned.__del__

        def destroyed(owned):
            events.append(owned.kind)
            destroy(owned)

        def progress(*_):
            r.close()
            events.append("closed")

        r = tessera.Registry("r").declare(
            tessera.KernelSet("k", target="generic").add(one_kernel("softmax")))
        with unittest.mock.patch.object(_abi.Owned, "__del__", destroyed):
            self.assertEqual([row["error"] for row in r.build(progress=progress)], [""])
            self.assertEqual(events, ["closed", "registry"])
        self.assert_refused("the registry was closed", r.list)


class Copies(Case):
    def test_what_belongs_to_a_process_is_not_pickled(self):
        d = tessera.Dispatcher()
        packed = tessera.prepack(numpy.ones((8, 8), "float32"))
        for handle in (d, d.plan("gemm m=8 n=8 k=8"), tessera.Registry("r"), packed):
            for copy_of in (pickle.dumps, copy.copy, copy.deepcopy):
                self.assert_refused("cannot be copied or pickled", copy_of, handle,
                                    code="unsupported")

    def test_what_is_data_is_pickled(self):
        kernels = tessera.KernelSet("k", target="avx2").preselected("fp32_rcr_essential")
        self.assertEqual(pickle.loads(pickle.dumps(kernels)).kernels, kernels.kernels)
        self.assertEqual(copy.deepcopy(kernels).kernels, kernels.kernels)


class Registries(Case):
    def test_declare_build_list(self):
        names = [one_kernel(kind) for kind in ("softmax", "rmsnorm")]
        kernels = tessera.KernelSet("mine", target="generic")
        for name in names:
            kernels.add(name)
        self.assertEqual(kernels.kernels, sorted(names))
        self.assertEqual(tessera.KernelSet.from_json(kernels.to_json()).kernels, sorted(names))
        calls = []
        r = tessera.Registry("r").declare(kernels)
        results = r.build(max_workers=2, progress=lambda *call: calls.append(call))
        self.assertEqual([row["error"] for row in results], ["", ""])
        self.assertEqual(sorted(call[1:3] for call in calls), [(1, 2), (2, 2)])
        self.assertTrue(all(row["is_loaded"] for row in r.list()))
        self.assertEqual(len(r.filter("*softmax*")), 1)
        copy = tessera.Registry("copy").import_json(r.export_json())
        self.assertEqual([row["kernel"] for row in copy.list()], sorted(names))
        self.assertEqual(len(tessera.Registry("m").merge(r).merge(copy)), 2)

    def test_where(self):
        some = tessera.KernelSet(target="avx512").op("gemm").where(dtype="fp32", layout=["rrr"],
                                                                   tile="192x960x*")
        self.assertTrue(some.kernels)
        self.assertTrue(all("_fp32_rrr_" in k and "192x960x" in k for k in some.kernels))
        self.assert_refused("nofield", some.where, nofield="1", code="parse_error")

    def test_receipts(self):
        some = tessera.KernelSet(target="avx2").receipt(801)
        self.assertEqual(len(some), 2)
        self.assertEqual(some.kernels, tessera.KernelSet(target="avx2").receipt("fp32_min").kernels)
        r = tessera.Registry("r").declare(some).declare(
            tessera.KernelSet(target="avx2").receipt("fp8_test"))
        self.assertEqual(len(r.filter_receipt("fp32")), 2)
        self.assertIn("fp8_test", r.receipts())
        self.assertNotIn("pytorch", r.receipts())
        self.assert_refused("unknown receipt 'flsh'", some.receipt, "flsh", code="not_found")

    def test_preselected(self):
        self.assertTrue(len(tessera.KernelSet(target="avx2").preselected("fp32_rcr_essential")))


class Models(Case):
    FOLDER = os.path.join(ROOT, "models")

    def test_predict_and_rank(self):
        folder = next((f for f in sorted(os.listdir(self.FOLDER)) if f.startswith("gemm_sm90a")),
                      None)
        self.assertIsNotNone(folder)
        m = tessera.Model.load(os.path.join(self.FOLDER, folder))
        dtype = folder.split("_", 2)[2]
        line = f"gemm m=512 n=512 k=512 dtype={dtype.replace('_', ',')}"
        best = m.rank(line, top=3)
        self.assertEqual(len(best), 3)
        self.assertEqual(m.predict(line, best[0]["kernel"]), best[0]["predicted"])
        names = [row["kernel"] for row in reversed(best)]
        self.assertEqual(m.predict_all(line, names), [row["predicted"] for row in reversed(best)])
        self.assertEqual(m.predict_all(line, []), [])
        with self.assertRaisesRegex(tessera.Error, "'nothing' is none of the "):
            m.predict_all(line, [*names, "nothing"])
        self.assertTrue(m.manifest())

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(tessera.Error):
                tessera.Model.load(folder)


if __name__ == "__main__":
    unittest.main()
