"""Appending of tessera.torch beside tessera.append_kv(), which test_append.py compares with a
reference: the same bits.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import DEVICES, SEED
from test_torch_attention import Attended

import torch

import tessera
import tessera.torch

TYPES = (torch.float32, torch.float16, torch.bfloat16)


def setUpModule():
    print(f"test_torch_append: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


class Append(Attended):
    def tables(self, positions, pairs, device):
        angles = torch.rand(positions, pairs, device=device) * 6
        return {"cos": angles.cos(), "sin": angles.sin(), "rotary": "half"}

    def assert_same_bits(self, mine, wanted, what):
        self.assertTrue(torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8)),
                        f"{what} differs, TESSERA_TEST_SEED={SEED}")

    def assert_as_arrays(self, caches, new, before, tensors, **how):
        """Twice: the second call finds its plan. tensors: what stands for numbers of `how`."""
        both = [[cache.clone() for cache in caches] for _ in range(2)]
        for _ in range(2):
            out = tessera.torch.append_kv(*both[0], *new, torch.tensor(
                before, device=new[0].device), **{**how, **tensors})
        lists = {name: tensor.int() if tensor.is_cuda else tensor.tolist()
                 for name, tensor in tensors.items()}
        first = torch.tensor(before, device=new[0].device, dtype=torch.int32)
        wanted = tessera.append_kv(*both[1], *new, first if new[0].is_cuda else before,
                                   **{**how, **lists})
        for mine, other, cache in zip(*both, caches):
            self.assert_same_bits(mine, other, "a cache")
            self.assertFalse(torch.equal(mine, cache))
        self.assertEqual(out is None, wanted is None)
        if out is not None:
            self.assertNotEqual(out.data_ptr(), how["q"].data_ptr())
            self.assert_same_bits(out, wanted, "q")

    def test_equals_numpy(self):
        for device in DEVICES:
            for dtype in TYPES:
                caches = [self.draw(2, 12, 2, n, device=device, dtype=dtype) for n in (16, 24)]
                new = [self.draw(2, 3, 2, n, device=device, dtype=dtype) for n in (16, 24)]
                turn = self.tables(12, 4, device)
                q = self.draw(2, 3, 4, 16, device=device, dtype=dtype)
                with self.subTest(device=device, dtype=dtype):
                    self.assert_as_arrays(caches, new, [9, 2], {})
                    self.assert_as_arrays(caches, new, [9, 2], {}, q=q, **turn)
                    counts = torch.tensor([1, 3], device=device)
                    self.assert_as_arrays(caches, new, [9, 2], {"seqlens_q": counts}, q=q, **turn)
                    packed = [x.flatten(0, 1) for x in new]
                    sums = torch.tensor([0, 2, 6], device=device)
                    self.assert_as_arrays(caches, packed, [9, 2], {"seqlens_q": sums},
                                          max_seqlen_q=4)

    def test_pages(self):
        for device in DEVICES:
            caches = [self.draw(7, 8, 2, n, device=device) for n in (16, 24)]
            new = [self.draw(2, 3, 2, n, device=device) for n in (16, 24)]
            table = torch.tensor([[5, 2, 0], [6, 1, 0]], device=device)
            with self.subTest(device=device):
                self.assert_as_arrays(caches, new, [14, 3], {"page_table": table})
                starts = torch.tensor([0, 3, 5], device=device)
                pages = torch.tensor([5, 2, 0, 6, 1], device=device)
                self.assert_as_arrays(caches, new, [14, 3],
                                      {"page_table": pages, "page_starts": starts})

    def test_heads_first(self):
        caches, new = ([self.draw(2, 2, tokens, 16) for _ in "kv"] for tokens in (12, 3))
        self.assert_as_arrays(caches, new, [0, 4], {}, layout="bhsd")

    def test_caches_of_eight_bits(self):
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            for given in (None, 0.01, torch.tensor([0.01, 0.02]), "tokens"):
                new = [self.draw(2, 3, 2, n, dtype=torch.bfloat16) for n in (16, 24)]
                before = torch.tensor([9, 2])
                both = []
                for append, lengths in ((tessera.torch.append_kv, before),
                                        (tessera.append_kv, [9, 2])):
                    caches = [torch.full((2, 12, 2, n), 0.5).to(dtype) for n in (16, 24)]
                    factors = [given, given]
                    if isinstance(given, str):
                        factors = [torch.full((2, 2, 12), 7.0) for _ in range(2)]
                    append(*caches, *new, lengths, descale_k=factors[0], descale_v=factors[1])
                    written = factors if isinstance(given, str) else []
                    both.append((*caches, *written))
                with self.subTest(dtype=dtype, given=str(given), seed=SEED):
                    for mine, wanted in zip(*both):
                        self.assert_same_bits(mine, wanted, "a cache or its factors")
                        self.assertGreater(len(mine.float().unique()), 2)
                    for factors in both[0][2:]:
                        self.assertTrue((factors[0, :, :9] == 7).all())
                        self.assertTrue((factors[0, :, 9:] != 7).all())

    def test_operator_and_compile(self):
        caches, new = ([self.draw(2, tokens, 2, 16) for _ in "kv"] for tokens in (12, 3))
        q, before, turn = self.draw(2, 3, 4, 16), torch.tensor([1, 5]), self.tables(12, 4, "cpu")
        arguments = (*caches, *new, before, q, turn["cos"], turn["sin"], None, None, None, None,
                     None, "half", None, None, "bshd")
        torch.library.opcheck(torch.ops.tessera.append_kv.default, arguments,
                              test_utils=("test_schema", "test_faketensor"))

        def step(k, v, k_new, v_new, q, before):
            turned = tessera.torch.append_kv(k, v, k_new * 2, v_new, before, q=q, **turn)
            return tessera.torch.attention(turned, k, v, seqlens_k=before + 3, mask="bottom_right")

        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        results = []
        for function in (compiled, step):
            own = [cache.clone() for cache in caches]
            results.append((function(*own, *new, q, before), *own))
        for mine, wanted in zip(*results):
            self.assert_same_bits(mine, wanted, "a compiled step")

    def test_refusals(self):
        k, v, new = self.draw(2, 12, 2, 16), self.draw(2, 12, 2, 16), self.draw(2, 3, 2, 16)
        before = torch.tensor([1, 5])
        for sentence, arguments, how in (
                (r"seqlens_k\[1\] must be at least 0 and at most 9, because 3 new tokens need "
                 "places below 12, got 10", (k, v, new, new, torch.tensor([1, 10])), {}),
                ("rotary='half' needs cos", (k, v, new, new, before), {"rotary": "half"}),
                ("k has 2 heads and k_new 1", (k, v, new[:, :, :1], new, before), {}),
                ("check_pages is for keys in pages", (k, v, new, new, before),
                 {"check_pages": True}),
                ("descale_v must be given beside the other factors of k and v",
                 (k, v, new, new, before), {"descale_k": 1.0}),
                ("descale_k and descale_v are for caches of float8 and new keys of another type, "
                 "got float32", (k, v, new, new, before), {"descale_k": 1.0, "descale_v": 1.0}),
                ("seqlens_k must have the type int32 or int64, got float32",
                 (k, v, new, new, before.float()), {}),
                ("k_new requires a gradient",
                 (k, v, new.clone().requires_grad_(), new, before), {})):
            kept = k.clone()
            with self.assertRaisesRegex(tessera.Error, f"append_kv: {sentence}"):
                tessera.torch.append_kv(*arguments, **how)
            self.assertTrue(torch.equal(k, kept))
        table = torch.tensor([[0, 9], [1, 0]])
        with self.assertRaisesRegex(tessera.Error,
                                    r"append_kv: page_table\[0, 1\] must be from 0 to 1, got 9"):
            tessera.torch.append_kv(k, v, new, new, torch.tensor([10, 1]), page_table=table)


if __name__ == "__main__":
    unittest.main()
