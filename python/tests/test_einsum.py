"""Contractions against numpy.einsum in fp64."""
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROUNDING, Case, random_numbers, wide

EQUATIONS = ("mk,kn->mn", "mk,nk->mn", "km,kn->nm", "bmk,bkn->bmn", "bqhd,bkhd->bhqk",
             "bhqk,bkhd->bqhd", "abxyk,kn->abxyn", "abij,cbji->acb", "k,k->", "m,n->mn",
             "ijkl,lkmn->mijn", "bi,bi->b", "mk,bkn->bmn", "xaybk,kzaw->wxzyba")


class Einsum(Case):
    def setUp(self):
        self.random = random_numbers()

    def tensor(self, letters, sizes, dtype):
        """Of any order in memory, now and then with gaps."""
        shape = [sizes[x] for x in letters]
        order = list(self.random.permutation(len(shape)))
        gap = int(self.random.integers(0, 3))
        whole = [shape[i] + (gap if at else 0) for at, i in enumerate(order)]
        made = self.random.standard_normal(whole).astype(dtype)
        made = made[tuple(slice(shape[i]) for i in order)]
        return made.transpose([order.index(i) for i in range(len(shape))])

    def check(self, equation, got, a, b):
        left, out = equation.split("->")
        sizes = dict(zip(left.replace(",", ""), (*a.shape, *b.shape)))
        k = int(numpy.prod([n for x, n in sizes.items() if x not in out]))
        bound = numpy.einsum(equation, abs(wide(a)), abs(wide(b)))
        bound = ((k + 4) * 2.0**-24 + ROUNDING[got.dtype.name]) * bound + 1e-30
        self.assert_near(got, numpy.einsum(equation, wide(a), wide(b)), bound)

    def test_any_order_and_type(self):
        for equation in EQUATIONS:
            dtype = ("float32", "float16", ml_dtypes.bfloat16)[self.random.integers(3)]
            with self.subTest(equation=equation, dtype=str(dtype)):
                sizes = {x: int(self.random.integers(1, 6)) for x in equation if x.isalpha()}
                a, b = (self.tensor(x, sizes, dtype) for x in equation.split("->")[0].split(","))
                self.check(equation, tessera.einsum(equation, a, b), a, b)

    def test_out_of_any_order_and_beta(self):
        a, b = self.random.standard_normal((2, 3, 4, 5)), self.random.standard_normal((2, 6, 4, 5))
        a, b = a.astype("float32"), b.astype("float32")
        for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
            shape = (2, 4, 3, 6)
            out = numpy.zeros([shape[i] for i in order], "float32").transpose(
                [order.index(i) for i in range(4)])
            out[...] = 1
            got = tessera.einsum("bqhd,bkhd->bhqk", a, b, out=out, alpha=0.5, beta=2.0)
            self.assertIs(got, out)
            wanted = 0.5 * numpy.einsum("bqhd,bkhd->bhqk", wide(a), wide(b)) + 2
            self.assert_near(got, wanted, 1e-5 * (abs(wanted) + 10))

    def test_dots_broadcast_and_the_result_may_be_left_out(self):
        a, b = (self.random.standard_normal(s).astype("float32")
                for s in ((2, 1, 3, 4), (5, 4, 6)))
        self.assert_near(tessera.einsum("...mk,...kn->...mn", a, b), wide(a) @ wide(b), 1e-4)
        self.assert_near(tessera.einsum("...mk,...kn", a, b), wide(a) @ wide(b), 1e-4)
        self.assert_near(tessera.einsum("ba,ca", a[0, 0], a[1, 0]),
                         numpy.einsum("ba,ca", wide(a[0, 0]), wide(a[1, 0])), 1e-4)

    def test_repeated_and_empty_operands(self):
        a = numpy.broadcast_to(self.random.standard_normal((3, 1)).astype("float32"), (3, 4))
        b = self.random.standard_normal((4, 5)).astype("float32")
        self.assert_near(tessera.einsum("mk,kn->mn", a, b), wide(a) @ wide(b), 1e-4)
        empty = numpy.zeros((3, 0), "float32")
        self.assert_near(tessera.einsum("mk,kn->mn", empty, b[:0]), numpy.zeros((3, 5)), 0)
        self.assertEqual(tessera.einsum("mk,kn->mn", a[:0], b).shape, (0, 5))

    def test_refusals(self):
        a, b = numpy.zeros((3, 4), "float32"), numpy.zeros((5, 6), "float32")
        rows = (("mk,kn->mn", "k must be of one size in a and b, got 4 and 5"),
                ("mm,mn->mn", "a has m twice"),
                ("mkx,kn->mn", "a has 2 dimensions, and 'mkx' names 3"),
                ("mk->mk", "an equation has 2 operands"),
                ("mk,xy->mz", "out has z, which neither a nor b has"),
                ("mk,xy->mx", "only a has k; add up over it first"))
        for equation, wanted in rows:
            with self.assertRaises(tessera.Error) as caught:
                tessera.einsum(equation, a, b)
            self.assertIn(wanted, str(caught.exception))

    def test_sources_are_merged(self):
        draw = lambda *shape: self.random.standard_normal(shape).astype("float32")
        problem = tessera.Problem("gemm m=7 n=5 k=6 merge_a=add sources_a=2 merge_b=multiply "
                                  "sources_b=2 layout=rrr ld_b1=0")
        a, a1, b, b1 = draw(7, 6), draw(7, 6), draw(6, 5), draw(5)
        out = numpy.empty((7, 5), "float32")
        tessera.run(problem, a=a, a1=a1, b=b, b1=b1, out=out)
        self.assert_near(out, (wide(a) + wide(a1)) @ (wide(b) * wide(b1)), 1e-4)


if __name__ == "__main__":
    unittest.main()
