"""Products of groups of tessera.torch against PyTorch in fp64, and beside torch._grouped_mm.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import SEED, Case

import torch

import tessera
import tessera.torch


def setUpModule():
    print(f"test_torch_grouped: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


def by_groups(a, b, offs):
    """The products one by one, with gradients."""
    ends = [0, *offs.tolist()]
    pairs = list(zip(ends, ends[1:]))
    if a.dim() == b.dim() == 2:
        return torch.stack([a[:, x:y] @ b[x:y] for x, y in pairs])
    if a.dim() == 2:
        parts = [a[x:y] @ b[i] for i, (x, y) in enumerate(pairs)]
        return torch.cat([*parts, a.new_zeros(a.shape[0] - ends[-1], b.shape[-1])])
    parts = [a[i] @ b[:, x:y] for i, (x, y) in enumerate(pairs)]
    return torch.cat([*parts, a.new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)


class Grouped(Case):
    def offs(self, groups, room, dtype=torch.int32):
        return torch.tensor(sorted(self.random.randrange(room + 1) for _ in range(groups)),
                            dtype=dtype)

    def operands(self, dtype, room=48, groups=4):
        draw = lambda *shape: torch.randn(*shape).to(dtype)
        yield "rows", draw(room, 16), draw(groups, 16, 24)
        yield "rows, weights by columns", draw(room, 16), draw(groups, 24, 16).mT
        yield "columns", draw(groups, 24, 16), draw(16, room)
        yield "k", draw(24, room), draw(room, 8)
        yield "k, a by columns", draw(room, 24).T, draw(room, 8)

    def tolerance(self, a, b, dtype):
        return (a.shape[-1] + 10) * 2.0**-20 + torch.finfo(dtype).eps * 200

    def test_all_shapes_and_their_gradients(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for what, a, b in self.operands(dtype):
                offs = self.offs(4, 48, self.random.choice((torch.int32, torch.int64)))
                a, b = (x.detach().requires_grad_() for x in (a, b))
                for _ in range(2):  # the second call finds its plan
                    out = tessera.torch.grouped_mm(a, b, offs=offs)
                wide = [x.detach().double().requires_grad_() for x in (a, b)]
                wanted = by_groups(*wide, offs)
                grad = torch.randn(out.shape).to(dtype)
                found = torch.autograd.grad(out, (a, b), grad)
                right = torch.autograd.grad(wanted, wide, grad.double())
                bound = self.tolerance(a, b, dtype)
                with self.subTest(what=what, dtype=dtype, seed=SEED, offs=offs.tolist()):
                    self.assertEqual(out.dtype, dtype)
                    for mine, other in zip((out, *found), (wanted, *right)):
                        self.assertEqual(mine.shape, other.shape)
                        self.assertLess((mine.double() - other).abs().max().item(), bound)

    def test_lists_and_their_gradients(self):
        for dtype in (torch.float32, torch.bfloat16):
            sizes = [[self.random.randrange(1, 40) for _ in range(3)] for _ in range(5)]
            sizes += [[self.random.randrange(0, 3) for _ in range(3)]]
            a = [torch.randn(m, k).to(dtype).requires_grad_() for m, k, _ in sizes]
            b = [torch.randn(n, k).to(dtype).requires_grad_() for _, k, n in sizes]
            out = tessera.torch.grouped_mm(a, [x.mT for x in b])
            wide = [x.detach().double().requires_grad_() for x in (*a, *b)]
            wanted = [x @ y.mT for x, y in zip(wide, wide[len(a):])]
            grads = [torch.randn(x.shape).to(dtype) for x in wanted]
            found = torch.autograd.grad(out, (*a, *b), grads)
            right = torch.autograd.grad(wanted, wide, [x.double() for x in grads])
            for mine, other in zip((*out, *found), (*wanted, *right)):
                with self.subTest(dtype=dtype, seed=SEED, shape=tuple(other.shape)):
                    self.assertEqual((mine.shape, mine.dtype), (other.shape, dtype))
                    if other.numel():
                        self.assertLess((mine.double() - other).abs().max().item(),
                                        self.tolerance(torch.empty(0, 40), None, dtype))
        with self.assertRaisesRegex(tessera.Error, "lists of one length, got 1 and 2"):
            tessera.torch.grouped_mm([torch.ones(1, 1)], [torch.ones(1, 1)] * 2)

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_lists_on_a_gpu(self):
        sizes = [[self.random.randrange(1, 300) for _ in range(3)] for _ in range(40)]
        a = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for m, k, _ in sizes]
        b = [torch.randn(k, n, device="cuda", dtype=torch.bfloat16) for _, k, n in sizes]
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            found = [tessera.torch.grouped_mm(a, b)]
        found.append(tessera.grouped_matmul(a, b, stream=side))
        for _ in range(20):  # arrays of other calls come to lie where those of this one lay
            found.append(tessera.grouped_matmul(a[::-1], b[::-1], stream=side)[::-1])
        side.synchronize()
        for x, y, *products in zip(a, b, *found):
            wanted = x.double() @ y.double()
            for product in products:
                with self.subTest(seed=SEED, shape=tuple(wanted.shape)):
                    self.assertLess((product.double() - wanted).abs().max().item(),
                                    self.tolerance(x, y, torch.bfloat16))

    def test_beside_pytorch(self):
        for what, a, b in self.operands(torch.bfloat16):
            offs = torch.tensor([16, 16, 32, 48], dtype=torch.int32)
            try:
                wanted = torch._grouped_mm(a, b, offs=offs)
            except (AttributeError, RuntimeError, NotImplementedError):
                continue  # not on this version's CPUs
            with self.subTest(what=what, seed=SEED):
                got = tessera.torch.grouped_mm(a, b, offs=offs)
                self.assertEqual((got.shape, got.dtype), (wanted.shape, wanted.dtype))
                self.assertTrue(torch.allclose(got.float(), wanted.float(), atol=0.2, rtol=0.02))

    def test_batches_without_offs(self):
        a, b = torch.randn(3, 5, 7), torch.randn(3, 7, 9)
        got = tessera.torch.grouped_mm(a, b)
        self.assertTrue(torch.allclose(got, a @ b, atol=1e-5))

    def refused(self, sentence, *tensors, **given):
        with self.assertRaises(tessera.Error) as caught:
            tessera.torch.grouped_mm(*tensors, **given)
        self.assertIn(sentence, str(caught.exception))

    def test_refusals(self):
        a, b = torch.randn(8, 4), torch.randn(3, 4, 5)
        offs = torch.tensor([2, 9, 9])
        self.refused("group_ends[1] must be at most 8, the room, m=8, got 9", a, b, offs=offs)
        self.refused("offs must be given where mat_a and mat_b have 2 and 3 dimensions", a, b)
        self.refused("bias must be None", a, b, offs=offs, bias=torch.randn(5))
        self.refused("out_dtype must be torch.float32", a, b, offs=torch.tensor([1, 2, 3]),
                     out_dtype=torch.bfloat16)

    def test_operator_and_compile(self):
        a, b = torch.randn(8, 4, requires_grad=True), torch.randn(3, 4, 5, requires_grad=True)
        offs = torch.tensor([1, 4, 8], dtype=torch.int32)
        torch.library.opcheck(torch.ops.tessera.grouped_mm.default, (a, b, offs),
                              test_utils=("test_schema", "test_faketensor"))
        compiled = torch.compile(lambda x, y, z: tessera.torch.grouped_mm(x * 2, y, offs=z).sum(),
                                 fullgraph=True, backend="aot_eager")
        total = compiled(a, b, offs)
        total.backward()
        self.assertTrue(torch.allclose(total, by_groups(a * 2, b, offs).sum(), atol=1e-4))
        self.assertEqual(a.grad.shape, a.shape)


if __name__ == "__main__":
    unittest.main()
