"""Products of 8-bit floats with scales of tessera.torch against PyTorch in fp64, and beside
torch._scaled_mm.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import SEED, Case

import torch

import tessera
import tessera.torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def setUpModule():
    print(f"test_torch_scaled: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


def draw(*shape, dtype=E4M3):
    return torch.randn(*shape).to(dtype)


def scales(*shape):
    return torch.rand(*shape) * 1.5 + 0.5


def powers(*shape):
    return (2.0 ** torch.randint(-6, 7, shape)).to(torch.float8_e8m0fnu)


def along(scale, k, block):
    """Scales by rows, repeated along k."""
    return scale.double().repeat_interleave(block, -1)[..., :k]


def blocks(scale, rows, k):
    return along(scale.repeat_interleave(128, -2)[..., :rows, :], k, 128)


def swizzled(scale):
    """Rows by blocks along k in the order of cuBLAS."""
    rows, k = -(-scale.shape[0] // 128), -(-scale.shape[1] // 4)
    whole = torch.zeros(rows * 128, k * 4, dtype=torch.uint8)
    whole[:scale.shape[0], :scale.shape[1]] = scale.view(torch.uint8)
    tiles = whole.view(rows, 4, 32, k, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(torch.float8_e8m0fnu)


class Scaled(Case):
    def near(self, got, a, b, bias=0.0):
        """a and b with their scales, in fp64."""
        wanted = a @ b + bias
        eps = torch.finfo(got.dtype).eps
        bound = a.abs() @ b.abs() * (2.0**-9 + a.shape[-1] * 2.0**-23) + wanted.abs() * eps
        self.assertEqual(got.shape, wanted.shape)
        self.assertLessEqual(((got.double() - wanted).abs() - bound).max().item(), 1e-6)

    def test_rows_and_matrices_beside_pytorch(self):
        a, b = draw(32, 64), draw(48, 64).t()
        for of_a, of_b in ((scales(()), scales(())), (scales(32, 1), scales(1, 48))):
            for bias in (None, torch.randn(48).bfloat16()):
                got = tessera.torch.scaled_mm(a, b, of_a, of_b, bias=bias)
                wide = 0.0 if bias is None else bias.double()
                self.near(got, a.double() * of_a, b.double() * of_b, wide)
                try:
                    wanted = torch._scaled_mm(a, b, of_a, of_b, bias=bias, out_dtype=got.dtype)
                except (RuntimeError, NotImplementedError):
                    continue  # not on this version's CPUs
                self.assertTrue(torch.allclose(got.float(), wanted.float(), atol=0.3, rtol=0.02))

    def test_blocks(self):
        m, n, k = 130, 150, 300
        a, b = draw(m, k), draw(n, k, dtype=E5M2).t()
        of_a, of_b = scales(m, 3), scales(3, n)
        by_rows = scales(3, m).t()  # neighbours along rows
        big_a, big_b = scales(2, 3), scales(3, 2)
        for x, wide_x in ((of_a, along(of_a, k, 128)), (by_rows, along(by_rows, k, 128)),
                          (big_a, blocks(big_a, m, k))):
            for y, wide_y in ((of_b, along(of_b.t(), k, 128)), (big_b, blocks(big_b.t(), n, k))):
                for dtype in (torch.bfloat16, torch.float32):
                    got = tessera.torch.scaled_mm(a, b, x, y, out_dtype=dtype)
                    self.assertEqual(got.dtype, dtype)
                    self.near(got, a.double() * wide_x, b.double() * wide_y.t())

    def test_mxfp8_in_rows_and_in_the_order_of_cublas(self):
        m, n, k = 130, 40, 300
        a, b, of_a, of_b = draw(m, k), draw(n, k).t(), powers(m, 10), powers(n, 10)
        wide = a.double() * along(of_a.float(), k, 32), b.double() * along(of_b.float(), k, 32).t()
        for x, y in ((of_a, of_b), (swizzled(of_a), swizzled(of_b))):
            got = tessera.torch.scaled_mm(a, b, x, y, torch.ones(n), out_dtype=torch.float32)
            self.near(got, *wide, 1.0)

    def groups(self, kind):
        room, k, n = 64, 160, 24
        offs = torch.tensor([16, 16, 48], dtype=torch.int32)
        if kind == "rows":
            return draw(room, k), draw(3, n, k).mT, offs
        if kind == "columns":
            return draw(3, n, k), draw(room, k).t(), offs
        return draw(n, room), draw(32, room).t(), offs

    def product(self, a, b, offs):
        ends = [0, *offs.tolist()]
        pairs = list(zip(ends, ends[1:]))
        if a.dim() == b.dim() == 2:
            return torch.stack([a[:, x:y] @ b[x:y] for x, y in pairs])
        if a.dim() == 2:
            parts = [a[x:y] @ b[i] for i, (x, y) in enumerate(pairs)]
            return torch.cat([*parts, a.new_zeros(a.shape[0] - ends[-1], b.shape[-1])])
        parts = [a[i] @ b[:, x:y] for i, (x, y) in enumerate(pairs)]
        return torch.cat([*parts, a.new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)

    def near_groups(self, got, a, b, offs):
        wanted, bound = self.product(a, b, offs), self.product(a.abs(), b.abs(), offs)
        self.assertEqual(got.shape, wanted.shape)
        bound = bound * (2.0**-9 + 2.0**-15) + wanted.abs() * 2.0**-8
        self.assertLessEqual(((got.double() - wanted).abs() - bound).max().item(), 1e-6)

    def test_groups_with_scales_of_rows(self):
        for kind in ("rows", "columns"):
            a, b, offs = self.groups(kind)
            of_a, of_b = scales(*a.shape[:-1]), scales(*b.shape[:-2], b.shape[-1])
            got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
            with self.subTest(kind=kind):
                self.near_groups(got, a.double() * of_a[..., None],
                                 b.double() * of_b[..., None, :], offs)
        a, b, offs = self.groups("k")
        of_a, of_b = scales(3 * 24), scales(3 * 32)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
        wide = self.product(a.double(), b.double(), offs)
        wide = wide * of_a.view(3, 24, 1) * of_b.view(3, 1, 32)
        self.assertLess((got.double() - wide).abs().max().item(), wide.abs().max().item() * 0.01)

    def test_groups_with_scales_of_blocks(self):
        a, b, offs = self.groups("rows")
        of_a, of_b = scales(64, 2), scales(3, 2, 24)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
        wide = a.double() * along(of_a, 160, 128), b.double() * along(of_b.mT, 160, 128).mT
        self.near_groups(got, *wide, offs)
        of_a, of_b = powers(64, 5), powers(3, 24, 5)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
        wide = (a.double() * along(of_a.float(), 160, 32),
                b.double() * along(of_b.float(), 160, 32).mT)
        self.near_groups(got, *wide, offs)
        a, b, offs = self.groups("columns")
        of_a, of_b = scales(3, 1, 2), scales(2, 64)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
        self.near_groups(got, a.double() * blocks(of_a, 24, 160),
                         b.double() * along(of_b.t(), 160, 128).t(), offs)
        a, b, offs = self.groups("k")
        of_a, of_b = powers(24, 2), powers(32, 2)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b, offs=offs)
        self.near_groups(got, a.double() * along(of_a.float(), 64, 32),
                         b.double() * along(of_b.float(), 64, 32).t(), offs)

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_groups_on_a_gpu_give_what_a_cpu_gives(self):
        room, k, n = 400, 384, 272
        offs = torch.tensor([100, 100, 333], dtype=torch.int32)
        given = {"rows": (draw(room, k), draw(3, n, k).mT, scales(room, 3), scales(3, 3, 3)),
                 "columns": (draw(3, n, k), draw(room, k).t(), scales(3, n, 3), scales(3, room)),
                 "k": (draw(n, room), draw(k, room).t(), scales(n, 4), scales(4, k))}
        for kind, tensors in given.items():
            wanted = tessera.torch.scaled_grouped_mm(*tensors, offs=offs).double()
            got = tessera.torch.scaled_grouped_mm(*(x.cuda() for x in tensors), offs=offs.cuda())
            with self.subTest(kind=kind):
                worst = (got.cpu().double() - wanted).abs().max().item()
                self.assertLess(worst, wanted.abs().max().item() * 0.01)

    def test_batches_without_offs(self):
        a, b = draw(3, 20, 160), draw(3, 24, 160).mT
        of_a, of_b = scales(3, 20), scales(3, 24)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b)
        self.near(got, a.double() * of_a[..., None], b.double() * of_b[:, None])
        of_a, of_b = scales(3, 20, 2), scales(3, 2, 1)
        got = tessera.torch.scaled_grouped_mm(a, b, of_a, of_b)
        self.near(got, a.double() * along(of_a, 160, 128),
                  b.double() * blocks(of_b.mT, 24, 160).mT)

    def test_compiled_and_fake(self):
        a, b, of_a, of_b = draw(40, 160), draw(24, 160).t(), scales(40, 2), scales(2, 24)
        call = lambda *x: tessera.torch.scaled_mm(*x, out_dtype=torch.float32) * 2
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        self.assertTrue(torch.equal(compiled(a, b, of_a, of_b), call(a, b, of_a, of_b)))
        meta = tessera.torch.scaled_mm(*(x.to("meta") for x in (a, b, of_a, of_b)))
        self.assertEqual((meta.shape, meta.dtype), ((40, 24), torch.bfloat16))
        rows, weights, offs = self.groups("rows")
        checks = "test_faketensor", "test_autograd_registration"  # the others compare 8-bit floats
        for operator, given in (("scaled_mm", (a, b, of_a, of_b, None)),
                                ("scaled_grouped_mm", (rows, weights, scales(64), scales(3, 24),
                                                       offs))):
            torch.library.opcheck(getattr(torch.ops.tessera, operator).default,
                                  (*given, torch.bfloat16), test_utils=checks)

    def refused(self, sentence, call, *given, **named):
        with self.assertRaises(tessera.Error) as caught:
            call(*given, **named)
        self.assertIn(sentence, str(caught.exception))

    def test_scales_that_do_not_match(self):
        a, b, one, mm = draw(130, 300), draw(20, 300).t(), scales(1), tessera.torch.scaled_mm
        self.refused("scaled_mm: scale_a must have 1 number or one of the shapes (130,), (130, 1), "
                     "(130, 3), (2, 3), (130, 10) for 130 rows and 300 elements along k, got "
                     "(130, 4)", mm, a, b, scales(130, 4), one)
        self.refused("scale_a of 1 dimension must have 3072 elements, those of 2 x 3 tiles of 128 "
                     "rows by 4 blocks along k, got 100", mm, a, b, powers(100), powers(20, 10))
        self.refused("must have one type, got float8_e8m0fnu and float32", mm, a, b,
                     powers(130, 10), one)
        self.refused("a has 300 columns and b has 299 rows", mm, a, b[:-1], one, one)
        self.refused("out_dtype must be bfloat16, float16 or float32, got float8_e4m3fn", mm, a, b,
                     one, one, out_dtype=None)
        self.refused("scale_result must be None", mm, a, b, one, one, scale_result=one)
        self.refused("bias must have the shape (20,), got (21,)", mm, a, b, one, one,
                     bias=scales(21))
        self.refused("got float32", mm, a.float(), b, one, one)
        self.refused("2 and 2 or 3 and 3 dimensions without offs, got 2 and 3",
                     tessera.torch.scaled_grouped_mm, a, draw(2, 300, 20), one, one)


if __name__ == "__main__":
    unittest.main()
