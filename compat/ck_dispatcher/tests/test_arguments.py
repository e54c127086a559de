"""Arguments of a wrong type get a sentence of ours."""
import unittest

import numpy

import tessera
from support import Case

from ctypes_utils import DispatcherLib, GemmRunner, KernelConfig, Validator
from fmha_utils import FmhaKernelConfig, FmhaProblem, FmhaRunner
from gemm_utils import GemmKernelConfig, expand_sweep
from grouped_conv_utils import (GroupedConvKernelConfig, GroupedConvProblem, GroupedConvRegistry)


class Arguments(Case):
    def refused(self, work, sentence):
        with self.assertRaises(tessera.Error) as caught:
            work()
        self.assertEqual(str(caught.exception), sentence)

    def test_fields(self):
        for make, name, value in ((KernelConfig, "tile_m", [1]), (KernelConfig, "dtype_a", 5),
                                  (GemmKernelConfig, "layout", None), (FmhaProblem, "batch", "2"),
                                  (FmhaKernelConfig, "lse", {}), (GroupedConvProblem, "G", 2.5),
                                  (GroupedConvKernelConfig, "arch", numpy.zeros(3))):
            with self.assertRaisesRegex(tessera.Error, f"^{name} of a {make.__name__} must be a?.*"
                                                       f", got a {type(value).__name__}$"):
                make(**{name: value})
        KernelConfig(tile_m=numpy.int64(64), pad_m=numpy.bool_(True))
        FmhaKernelConfig(mask=1)

    def test_strides_of_zero(self):
        for name in ("G", "stride_h", "stride_d"):
            with self.assertRaisesRegex(ValueError, f"^{name} must be at least 1, got 0$"):
                GroupedConvProblem(**{name: 0})

    def test_gemm(self):
        lib, a = DispatcherLib(), self.draw(4, 4)
        self.refused(lambda: lib.select_kernel(4, "x", 4), "N must be a whole number, got a str")
        self.refused(lambda: GemmRunner(lib).run(a[0], a),
                     "A and B must have two dimensions, got the shapes (4,) and (4, 4)")
        self.assertEqual(GemmRunner(lib).run(numpy.full((4, 4), "x"), a).error,
                         "A must hold numbers, got a ndarray")
        self.refused(lambda: Validator().check("x", a), "the result must hold numbers, got a str")
        self.refused(lambda: Validator().check(a, {}),
                     "the reference must hold numbers, got a dict")
        with self.assertRaisesRegex(tessera.Error, "^a sweep has no field 'zz'; there are "):
            expand_sweep({"tile_config": {"zz": 3}})

    def test_attention(self):
        p = FmhaProblem(1, 2, 1, 3, 5, 8, 8)
        q, k, v = (self.draw(*shape) for shape in (p.q_shape(), p.k_shape(), p.v_shape()))
        runner = FmhaRunner(FmhaKernelConfig(data_type="fp32"))
        found = runner.run_bwd(q, k, v, q, "x", q, p, data_type="fp32")
        self.assertEqual((found.success, found.error),
                         (False, "lse must hold numbers, got a ndarray"))
        run = lambda **given: runner.run(q, k, v, p, **{  # noqa: E731
            "data_type": "fp32", **given}).error
        self.assertEqual(run(data_type=2.5), "data_type must be a text, got a float")
        self.assertEqual(run(mask_type=[1]), "mask_type must be a text or a number, got a list")
        self.refused(lambda: run(window=(1, 2, 3)), "window[0] must be a whole number, got a "
                     "NoneType")
        self.refused(lambda: run(page_size=[8]), "page_size must be a whole number, got a list")
        self.assertEqual(run(page_size=None, num_splits=None, window=None), "")
        p.hdim_q = None
        self.assertEqual(run(), "hdim_q of a FmhaProblem must be a whole number, got a NoneType")

    def test_texts_of_registries(self):
        for text in ("", "[]", "null", '{"metadata": {}}',
                     '{"metadata": {"registry_name": "a"}, "kernels": [{}]}'):
            with self.assertRaisesRegex(tessera.Error, "^the text is no registry of to_json"):
                GroupedConvRegistry.from_json(text)


if __name__ == "__main__":
    unittest.main()
