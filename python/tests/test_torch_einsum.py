"""Contractions of tessera.torch against torch.einsum in fp64, with gradients.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import SEED, Case

import torch

import tessera
import tessera.torch


def setUpModule():
    print(f"test_torch_einsum: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


class Einsum(Case):
    def near(self, got, wanted, slack=1e-4):
        self.assertEqual(got.shape, wanted.shape)
        self.assertLessEqual((got.double() - wanted).abs().max().item(), slack)

    def test_products_and_gradients(self):
        torch.manual_seed(SEED)
        for equation, *shapes in (("bqhd,bkhd->bhqk", (2, 5, 3, 8), (2, 6, 3, 8)),
                                  ("mk,kn->mn", (4, 5), (5, 6)),
                                  ("xhyk,nhk->xny", (2, 3, 4, 5), (6, 3, 5)),
                                  ("mk,bkn->bmn", (4, 5), (3, 5, 6))):
            a, b = (torch.randn(shape, requires_grad=True) for shape in shapes)
            wanted = torch.einsum(equation, a.double(), b.double())
            grad = torch.randn(wanted.shape)
            right = torch.autograd.grad(wanted, (a, b), grad.double())
            for _ in range(2):  # the second call finds its plan
                out = tessera.torch.einsum(equation, a, b)
                self.near(out, wanted)
                for x, y in zip(torch.autograd.grad(out, (a, b), grad), right):
                    self.near(x, y.double())

    def test_dots_broadcast(self):
        a, b = torch.randn(1, 4, 5, requires_grad=True), torch.randn(3, 5, 6)
        out = tessera.torch.einsum("...mk,...kn->...mn", a, b)
        self.near(out, a.double() @ b.double())
        out.sum().backward()
        self.near(a.grad, b.double().sum(-1).sum(0).expand(1, 4, 5))

    def test_refuses_sizes_that_do_not_match(self):
        with self.assertRaisesRegex(tessera.Error, "k must be of one size in a and b, got 4 and 5"):
            tessera.torch.einsum("mk,kn->mn", torch.randn(3, 4), torch.randn(5, 6))


if __name__ == "__main__":
    unittest.main()
