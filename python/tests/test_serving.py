"""What is ready without a compiler, what is loaded ahead, and launches that are compared."""
import os
import tempfile
import unittest

import numpy

import tessera
from support import Case, needs, random_numbers

LINE = "gemm m=9 n=7 k=5 dtype=fp32 layout=rrr"


def ready_kernels(count):
    """The best kernels for the line on the target that runs everywhere."""
    chosen = tessera.select(LINE, target="generic", threads=1)
    return [row["kernel"] for row in chosen["considered"] if not row["refusal"]][:count]


@needs("tsr_preload")
class Serving(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(tessera.on_compile, None)

    def dispatcher(self, cache="cache", **options):
        options.setdefault("build", {"no_shipped_packs": 1})
        return tessera.Dispatcher("generic", threads=1, cache=os.path.join(self.folder, cache),
                                  **options)

    def pack_of(self, kernel):
        file = os.path.join(self.folder, "one.pack")
        tessera.command("pack", target=["generic"], name=[kernel], output=file)
        return file

    def multiply(self, dispatcher):
        a, b = (random_numbers().standard_normal(shape).astype("float32")
                for shape in ((9, 5), (5, 7)))
        out = dispatcher.run(LINE, a=a, b=b)
        numpy.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)

    def test_a_hook_hears_and_refuses(self):
        heard = []
        tessera.on_compile(lambda kernel, why: heard.append((kernel, why)))
        self.multiply(self.dispatcher())
        self.assertEqual(heard[0][0], ready_kernels(1)[0])
        self.assertTrue(heard[0][1].startswith("for 'gemm m=9 n=7 k=5"), heard[0])
        tessera.on_compile(lambda kernel, why: False)
        self.assert_refused("compile hook refused", self.multiply, self.dispatcher("other"),
                            code="jit_disabled")
        self.assert_refused("hook must be callable", tessera.on_compile, 3)

    def test_a_pack_is_loaded_ahead(self):
        kernel = ready_kernels(3)[2]
        pack = self.pack_of(kernel)
        d = self.dispatcher(build={"no_shipped_packs": 1, "no_compile": 1})
        self.assert_refused("no kernel that can run 'gemm", d.plan, LINE, code="jit_disabled")
        done = d.preload(pack)
        self.assertEqual((done["kernels"], done["skipped"]), (1, []))
        self.assertEqual(d.plan(LINE).kernel, kernel)
        self.multiply(d)
        self.assert_refused("cannot read the pack", d.preload, pack + ".not", code="io_error")

    def test_launches_are_compared(self):
        d = self.dispatcher(verify_every=1)
        self.multiply(d)
        report = d.sampling()
        self.assertEqual((report["launches"], report["compared"], report["wrong"]), (1, 1, 0))
        self.assert_refused("verify_every must be", self.dispatcher, verify_every=-1)


if __name__ == "__main__":
    unittest.main()
