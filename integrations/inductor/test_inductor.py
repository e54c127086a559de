"""Inductor's candidates, and compiling what tessera.torch.optimize() made."""
from __future__ import annotations

import random
import unittest
from unittest import mock

import tessera
import tessera.torch
import torch
from torch import nn
from torch._inductor import config, select_algorithm

import tessera_inductor

SEED = random.SystemRandom().randrange(10**6)
print(f"seed {SEED}, torch {torch.__version__}")


class Candidates(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        torch._dynamo.reset()
        tessera_inductor.register()
        tessera_inductor.report(clear=True)
        self.seen = {}
        select_algorithm.add_feedback_saver(self.remember)

    def tearDown(self):
        select_algorithm.clear_feedback_savers()
        tessera_inductor.unregister()

    def remember(self, timings, name, *_):
        self.seen.setdefault(name, set()).update(choice.name for choice in timings)

    def compiled(self, function, *inputs):
        with config.patch(force_disable_caches=True):
            made = torch.compile(function, mode="max-autotune", fullgraph=True, dynamic=False)
            torch.testing.assert_close(made(*inputs), function(*inputs), rtol=1e-4, atol=1e-4)

    def check_among(self, name, *parts):
        self.assertIn(name, self.seen)
        for part in parts:
            self.assertTrue(any(part in choice for choice in self.seen[name]), self.seen)

    def test_a_product_of_pytorch_has_ours(self):
        self.compiled(torch.mm, torch.randn(33, 64), torch.randn(64, 48))
        self.check_among("mm", "tessera_mm", "mm")
        self.assertGreater(len(self.seen["mm"]), 1)

    def test_our_product_has_pytorchs(self):
        x, weight, bias = torch.randn(33, 64), torch.randn(48, 64), torch.randn(48)
        self.compiled(lambda *inputs: tessera.torch.linear(*inputs, "gelu"), x, weight, bias)
        self.check_among("tessera_linear", "tessera_linear_tessera", "aten_linear")

    def test_our_matmul_has_pytorchs(self):
        a, b, bias, residual = (torch.randn(*shape) for shape in
                                ((2, 9, 16), (16, 24), (24,), (2, 9, 24)))
        self.compiled(lambda *inputs: tessera.torch.matmul(*inputs[:3], "relu", inputs[3]),
                      a, b, bias, residual)
        self.check_among("tessera_matmul", "tessera_matmul_tessera", "aten_matmul")

    def test_each_candidate_is_right(self):
        """Whichever is the fastest: here it stands against itself."""
        x, weight, bias = torch.randn(7, 16), torch.randn(24, 16), torch.randn(24)
        made = tessera_inductor._linear_candidates
        for which in range(2):
            torch._dynamo.reset()
            with mock.patch.object(tessera_inductor, "_linear_candidates",
                                   lambda *given, which=which: [made(*given)[which]] * 2):
                self.compiled(lambda *inputs: tessera.torch.linear(*inputs, "silu"), x, weight,
                              bias)

    def test_the_candidate_of_mm_writes_what_it_is_given(self):
        for rows, dtype in ((5, torch.float32), (300, torch.float32), (300, torch.bfloat16),
                            (300, torch.float64)):
            a, b = torch.randn(rows, 40).to(dtype), torch.randn(40, 512).to(dtype)
            out = torch.zeros(rows, 600, dtype=dtype)
            tessera_inductor.tessera_mm(a, b, out=out[:, :512])
            torch.testing.assert_close(out[:, :512], a @ b)
            self.assertFalse(out[:, 512:].any())
        self.assertEqual(tessera_inductor.report(),
                         [("aten.mm", "the types are torch.float64, torch.float64", 1)])

    def test_what_tessera_does_not_take_is_pytorchs_and_reported(self):
        a, b = torch.randn(33, 64).double(), torch.randn(64, 48).double()
        with config.patch(force_disable_caches=True):
            made = torch.compile(torch.mm, mode="max-autotune", fullgraph=True, dynamic=False)
            self.assertTrue(torch.equal(made(a, b), torch.mm(a, b)))
        for row in tessera_inductor.report():
            self.assertIn("float64", row.why)
        out = torch.empty(3, 5)
        refusal = tessera.Error("no kernel")
        with mock.patch.object(tessera_inductor, "_product", side_effect=refusal):
            a, b = torch.randn(3, 4), torch.randn(4, 5)
            self.assertTrue(torch.equal(tessera_inductor.tessera_mm(a, b, out=out), a @ b))
        self.assertEqual(tessera_inductor.report()[-1].why, "no kernel")

    def test_without_max_autotune_nothing_is_measured(self):
        x, weight = torch.randn(7, 16), torch.randn(24, 16)
        made = torch.compile(lambda *inputs: tessera.torch.linear(*inputs), fullgraph=True)
        with config.patch(force_disable_caches=True):  # what was compiled before has no lowering
            torch.testing.assert_close(made(x, weight), x @ weight.T, rtol=1e-4, atol=1e-4)
        self.assertEqual(self.seen, {})
        (row,) = tessera_inductor.report()
        self.assertEqual(row[:2], ("tessera.linear", "not measured: max_autotune is not asked for"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, x):
        tokens = self.head(x).flatten(2).mT
        q, k, v = self.qkv(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = tessera.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mlp(tokens + self.out(y.transpose(1, 2).flatten(2)))


class Graphs(unittest.TestCase):
    def test_an_optimized_model_is_one_graph(self):
        torch.manual_seed(SEED)
        for frozen in (True, False):
            torch._dynamo.reset()
            model = Block().eval().requires_grad_(not frozen)
            x = torch.randn(2, 3, 5, 5)
            model, report = tessera.torch.optimize(model, example=x)
            self.assertTrue(report.agrees)
            found = torch._dynamo.explain(model)(x)
            self.assertEqual((found.graph_break_count, found.graph_count), (0, 1))
            torch._dynamo.reset()
            made = torch.compile(model, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
