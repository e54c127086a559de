"""Routers against NumPy in fp64: experts, weights, and the order by experts."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import Case, random_numbers, wide


def plain(logits, top_k, scoring="softmax", bias=None, renormalize=True, num_groups=1,
          top_groups=1, scaling_factor=1.0):
    """The definition, token by token."""
    ids, weights = [], []
    for x in wide(logits):
        e = numpy.exp(x - x.max())
        scores = e / e.sum() if scoring == "softmax" else 1 / (1 + numpy.exp(-x))
        choice = x.copy() if bias is None else scores + wide(bias)
        groups = choice.reshape(num_groups, -1)
        best = numpy.sort(groups, axis=1)[:, ::-1]
        worth = best[:, 0] if bias is None else best[:, :2].sum(1)
        for group in numpy.argsort(-worth, kind="stable")[top_groups:]:
            groups[group] = -numpy.inf
        own = numpy.argsort(-choice, kind="stable")[:top_k]
        weight = scores[own] / (scores[own].sum() if renormalize else 1)
        ids.append(own), weights.append(scaling_factor * weight)
    return numpy.array(ids).reshape(-1, top_k), numpy.array(weights).reshape(-1, top_k)


def in_order(ids, experts):
    flat = ids.reshape(-1)
    flat = numpy.where((flat >= 0) & (flat < experts), flat, experts)
    slots = numpy.argsort(flat, kind="stable")
    ends = numpy.searchsorted(flat[slots], numpy.arange(experts), side="right")
    return ends, slots // max(1, ids.shape[1]), slots


class Routing(Case):
    def setUp(self):
        self.random = random_numbers()

    def compare(self, logits, top_k, **rule):
        ids, weights, order = tessera.route(logits, top_k, order=True, **rule)
        wanted_ids, wanted = plain(logits, top_k, **rule)
        with self.subTest(shape=logits.shape, dtype=str(logits.dtype), top_k=top_k, **rule):
            self.assertEqual((ids.dtype, weights.dtype), (numpy.int32, numpy.float32))
            numpy.testing.assert_array_equal(ids, wanted_ids)
            numpy.testing.assert_allclose(weights, wanted, rtol=1e-5, atol=1e-30)
            for got, right in zip(order, in_order(ids, logits.shape[1])):
                self.assertEqual(got.dtype, numpy.int32)
                numpy.testing.assert_array_equal(got, right)
        for got, right in zip(tessera.route(logits, top_k, **rule), (ids, weights)):
            numpy.testing.assert_array_equal(got, right)

    def test_types_and_rules(self):
        bias = self.random.standard_normal(24).astype("float32")
        for dtype in ("float32", "float16", ml_dtypes.bfloat16):
            logits = self.random.standard_normal((37, 24)).astype(dtype)
            self.compare(logits, 5)
            self.compare(logits, 1, renormalize=False)
            self.compare(logits, 24, scoring="sigmoid", scaling_factor=2.5)
            self.compare(logits, 4, num_groups=6, top_groups=2)
            # Scores of few bits may lie closer than a kernel's errors; those of fp32 do not.
            if dtype == "float32":
                self.compare(logits, 4, scoring="sigmoid", bias=bias, num_groups=4, top_groups=2)

    def test_rows_with_gaps_and_none(self):
        memory = self.random.standard_normal((9, 50)).astype("float32")
        self.compare(memory[:, :32], 3)
        self.compare(memory[:0, :32], 3)

    def test_equal_scores(self):
        ids, weights = tessera.route(numpy.zeros((3, 40), "float32"), 4)
        numpy.testing.assert_array_equal(ids, [[0, 1, 2, 3]] * 3)
        numpy.testing.assert_allclose(weights, 0.25, rtol=1e-6)

    def test_given_experts(self):
        for tokens, experts in ((1, 1), (50, 7), (1000, 300), (0, 5)):
            ids = self.random.integers(-2, experts + 2, (tokens, 3)).astype("int32")
            order = tessera.order_by_expert(ids, experts)
            for got, right in zip(order, in_order(ids, experts)):
                numpy.testing.assert_array_equal(got, right)

    def test_refusals(self):
        x = numpy.zeros((3, 8), "float32")
        ids = numpy.zeros((3, 2), "int32")
        rows = [
            (lambda: tessera.route(x, 9),
             "route: top_k must be between 1 and the number of experts, 8, got 9"),
            (lambda: tessera.route(x, 2.0), "route: top_k must be an integer, got 2.0"),
            (lambda: tessera.route(x[0], 2), "route: logits must have 2 dimensions, got 1"),
            (lambda: tessera.route(x, 2, scoring="relu"),
             "route: scoring must be one of softmax, sigmoid, got 'relu'"),
            (lambda: tessera.route(x, 2, num_groups=3),
             "route: num_groups must divide the number of experts, 8, got 3"),
            (lambda: tessera.route(x, 2, bias=x[0, :4]),
             "route: bias must have the shape (8,), the type float32 and no gaps, got (4,) of fp32 "
             "and the strides (1,)"),
            (lambda: tessera.route(x.T, 2),
             "route: the elements of a row of logits must be neighbours; got the strides (1, 8) "
             "over (8, 3)"),
            (lambda: tessera.order_by_expert(ids, 0),
             "order_by_expert: experts must be at least 1, got 0"),
            (lambda: tessera.order_by_expert(x, 4),
             "order_by_expert: ids must have the type int32, got fp32"),
        ]
        for call, sentence in rows:
            with self.assertRaises(tessera.Error) as raised:
                call()
            self.assertEqual(str(raised.exception), sentence)


if __name__ == "__main__":
    unittest.main()
