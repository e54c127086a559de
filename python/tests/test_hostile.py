"""Wrong values for every argument: tools/attack/hostile_arguments.py does that at length."""
import os
import sys
import unittest

import numpy

import tessera
from support import ROOT, SEED, Case, random_numbers

sys.path.insert(0, os.path.join(ROOT, "tools/attack"))
import hostile_arguments  # noqa: E402

SHARE = 0.01  # of all values


class Hostile(Case):
    def test_whatever_an_argument_holds_the_error_is_a_sentence(self):
        draw, found = random_numbers(), []
        for name, function, right in (*hostile_arguments.functions(draw),
                                      *hostile_arguments.objects(draw)):
            def report(argument, value, fault, _):
                found.append(f"{name}({argument}={hostile_arguments.described(value)}): {fault}")
            for _ in hostile_arguments.attack(function, right, draw, report, SHARE):
                pass
        self.assertEqual(found, [], f"seed {SEED}")

    def test_a_mask_that_is_an_array(self):
        q = numpy.zeros((1, 4, 2, 8), "float32")
        mask = numpy.tril(numpy.ones((4, 4)))
        self.assert_refused(
            r"attention: mask must be None or one of top_left, bottom_right, got ndarray of the "
            r'shape \(4, 4\); a triangle is mask="top_left", and any other mask is a bias, such as '
            r"bias=numpy.where\(mask, 0, -numpy.inf\).astype\(q.dtype\)$",
            tessera.attention, q, q, q, mask=mask)
        bias = numpy.where(mask, 0, -numpy.inf).astype(q.dtype)
        self.assertTrue((tessera.attention(q, q, q, bias=bias) ==
                         tessera.attention(q, q, q, mask="top_left")).all())

    def test_values_of_other_kinds(self):
        q, k = numpy.zeros((1, 1, 2, 8), "float32"), numpy.zeros((1, 4, 2, 8), "float32")
        x = numpy.zeros((4, 8), "float32")
        new = {"k_new": q, "v_new": q, "rotary": "half", "sin": k[0, :, 0, :4]}
        image, weight = numpy.zeros((1, 4, 4, 2), "float32"), numpy.zeros((2, 1, 1, 2), "float32")
        for sentence, call, arguments, how in (
                ("decode: v_cache must be an array .*, got None", tessera.decode,
                 (q, k, None, [0]), {**new, "cos": k[0, :, 0, :4]}),
                ("softmax: x must be an array", tessera.softmax, ([[1.0]],), {}),
                ("decode: cos must be an array .*, got 5", tessera.decode, (q, k, k, [0]),
                 {**new, "cos": 5}),
                ("rms_norm: epsilon must be a number, got 'x'", tessera.rms_norm, (x,),
                 {"epsilon": "x"}),
                (r"conv: alpha must be a number, got ndarray of the shape \(4, 8\)", tessera.conv,
                 (image, weight), {"alpha": x}),
                ("Dispatcher: build must be a dict or None, got 5", tessera.Dispatcher, (),
                 {"build": 5}),
                ("threads must be .* below 2.31, got 4294967297", tessera.Dispatcher,
                 (), {"threads": 2**32 + 1}),
                ("a plan is made by a Dispatcher, got ''", tessera.Plan,
                 ("", tessera.Problem("gemm m=1 n=1 k=1")), {})):
            self.assert_refused(sentence, call, *arguments, **how)

    def test_a_number_of_numpys_is_an_array_of_its_own(self):
        """Its interface shows memory that is gone."""
        view = tessera._arrays.view_of(numpy.float32(3), "x")
        self.assertEqual(view.owner.ctypes.data, view.address)
        a = numpy.ones(4, "float32")
        self.assert_refused("out is read-only", tessera.matmul, a, a, out=numpy.float32(0))


if __name__ == "__main__":
    unittest.main()
