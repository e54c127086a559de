"""The attention function, the experts and the layers by themselves: what is taken, what is left to
the framework, and the report."""
from __future__ import annotations

import copy
import random
import types
import unittest

import tessera
import torch
import transformers
from torch import nn
from transformers.integrations import moe
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import models
import tessera_transformers as plug

SEED = random.SystemRandom().randrange(10**6)
print(f"seed {SEED}")


class Module(nn.Module):
    def __init__(self, groups: int, causal: bool = True):
        super().__init__()
        self.num_key_value_groups, self.is_causal = groups, causal


def tensors(batch=2, heads=4, heads_kv=2, queries=5, keys=5, hdim=16, dtype=torch.float32):
    return (torch.randn(batch, heads, queries, hdim).to(dtype),
            torch.randn(batch, heads_kv, keys, hdim).to(dtype),
            torch.randn(batch, heads_kv, keys, hdim).to(dtype))


def by_hand(q, k, v, mask, scale, soft_cap=None, sinks=None):
    """In float64."""
    q, k, v = (tensor.double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.mT * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().reshape(1, -1, 1, 1).expand(
            *scores.shape[:3], 1)], -1)
    weights = scores.softmax(-1)[..., :k.shape[2]]
    return (weights @ v).transpose(1, 2)


class Attention(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        plug.tessera_report(clear=True)

    def agree(self, found, expected):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(plug.tessera_report(), [])

    def test_masks(self):
        q, k, v = tensors(keys=9)
        mask = torch.rand(2, 1, 5, 9) < 0.6
        mask[..., 0] = True
        for given in (mask, mask[:1], mask.expand(2, 4, 5, 9)):
            found, weights = plug.tessera_attention(Module(2), q, k, v, given, scaling=0.3)
            self.assertIsNone(weights)
            self.agree(found, by_hand(q, k, v, given, 0.3))

    def test_a_mask_that_was_written_into_is_read_again(self):
        q, k, v = tensors(keys=9)
        mask = torch.ones(2, 1, 5, 9, dtype=torch.bool)
        plug.tessera_attention(Module(2), q, k, v, mask, scaling=0.3)
        mask[..., 4:] = False
        found, _ = plug.tessera_attention(Module(2), q, k, v, mask, scaling=0.3)
        self.agree(found, by_hand(q, k, v, mask, 0.3))

    def test_causal_without_a_mask(self):
        for queries, keys in ((5, 5), (5, 9), (1, 9)):  # the second one is an empty static cache
            q, k, v = tensors(queries=queries, keys=keys)
            found, _ = plug.tessera_attention(Module(2), q, k, v, None)
            lower = torch.ones(queries, keys, dtype=torch.bool).tril() if queries > 1 else None
            self.agree(found, by_hand(q, k, v, lower, 0.25))

    def test_no_mask_at_all(self):
        q, k, v = tensors(queries=5, keys=7)
        for module, given in ((Module(2, False), None), (Module(2), False)):
            found, _ = plug.tessera_attention(module, q, k, v, None, is_causal=given)
            self.agree(found, by_hand(q, k, v, None, 0.25))

    def test_soft_cap(self):
        q, k, v = tensors(queries=4, keys=7)
        mask = torch.ones(4, 7, dtype=torch.bool).tril(3).expand(2, 1, 4, 7)
        found, _ = plug.tessera_attention(Module(2), q * 5, k, v, mask, scaling=0.5, softcap=2.0)
        self.agree(found, by_hand(q * 5, k, v, mask, 0.5, soft_cap=2.0))

    def test_sinks(self):
        q, k, v = tensors(queries=4, keys=7)
        sinks = torch.randn(4)
        mask = torch.ones(4, 7, dtype=torch.bool).tril(3).expand(2, 1, 4, 7)
        found, _ = plug.tessera_attention(Module(2), q, k, v, mask, scaling=0.5, s_aux=sinks)
        self.agree(found, by_hand(q, k, v, mask, 0.5, sinks=sinks))
        with self.assertRaisesRegex(tessera.Error, "sinks"):
            plug.tessera_attention(Module(2), q, k, v, mask, s_aux=sinks.requires_grad_())
        with self.assertRaisesRegex(tessera.Error, "sinks"):  # which PyTorch's would leave out
            plug.tessera_attention(Module(2), q.double(), k.double(), v.double(), mask,
                                   s_aux=sinks.detach())

    def test_dropout_keeps_the_mean(self):
        q, k, v = tensors(batch=1, heads=4, heads_kv=4, queries=64, keys=64)
        v = torch.ones_like(v)
        found, _ = plug.tessera_attention(Module(1), q, k, v, None, dropout=0.5, is_causal=False)
        self.assertGreater(float(found.std()), 0.01)
        self.assertLess(abs(float(found.mean()) - 1), 0.1)
        self.assertEqual(plug.tessera_report(), [])

    def test_what_is_left_to_the_framework_is_its_result_and_told_once(self):
        q, k, v = tensors()
        wide = tuple(tensor.double() for tensor in (q, k, v))
        bias = torch.randn(1, 4, 5, 5)
        for given, named in ((wide, {}), ((q, k, v), {"position_bias": bias}),
                             ((q, k, v), {"output_attentions": True}), ((q[:1], k, v), {})):
            expected, _ = sdpa_attention_forward(Module(2), *given, None, **named)
            for _ in range(2):
                found, _ = plug.tessera_attention(Module(2), *given, None, **named)
                self.assertTrue(torch.equal(found, expected))
        report = plug.tessera_report(clear=True)
        self.assertEqual([(row.what, row.first, row.calls) for row in report],
                         [("attention", "Module", 2)] * 4)
        for row, word in zip(report, ("float64", "position_bias", "weights", "batch of 1")):
            self.assertIn(word, row.why)
        self.assertEqual(plug.tessera_report(), [])

    def test_compiled_without_a_break(self):
        q, k, v = tensors(keys=9)
        mask = torch.ones(5, 9, dtype=torch.bool).tril(4).expand(2, 1, 5, 9)
        module = Module(2)
        compiled = torch.compile(
            lambda *inputs: plug.tessera_attention(module, *inputs, scaling=0.3)[0],
            fullgraph=True, backend="aot_eager")
        self.agree(compiled(q, k, v, mask), by_hand(q, k, v, mask, 0.3))


class Experts(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)
        plug.tessera_report(clear=True)

    def module(self, transposed, bias, gate):
        def weight(rows, columns):
            shape = (5, columns, rows) if transposed else (5, rows, columns)
            return torch.randn(*shape)
        name = "gate_up_proj" if gate else "up_proj"
        wide = 24 if gate else 12
        made = types.SimpleNamespace(
            num_experts=5, is_transposed=transposed, has_bias=bias, has_gate=gate,
            has_post_expert_norm=False, _is_expert_parallel=False, is_concatenated=True,
            act_fn=nn.functional.silu, down_proj=weight(8, 12), **{name: weight(wide, 8)})
        if bias:
            setattr(made, f"{name}_bias", torch.randn(5, wide))
            made.down_proj_bias = torch.randn(5, 8)
        made._apply_gate = lambda hidden: moe._default_apply_gate(made, hidden)
        return made

    def test_all_forms_of_weights(self):
        draw = random.Random(SEED)
        for form in range(8):
            module = self.module(*(bool(form >> bit & 1) for bit in range(3)))
            tokens = draw.randint(1, 11)
            x = torch.randn(tokens, 8)
            index = torch.stack([torch.randperm(5)[:2] for _ in range(tokens)])
            inputs = (x, index, torch.rand(tokens, 2))
            torch.testing.assert_close(plug.tessera_experts(module, *inputs),
                                       moe.batched_mm_experts_forward(module, *inputs),
                                       rtol=1e-4, atol=1e-4)
        self.assertEqual(plug.tessera_report(), [])

    def test_what_is_left_to_the_framework(self):
        module = self.module(False, False, True)
        module._is_expert_parallel = True
        inputs = (torch.randn(3, 8), torch.tensor([[0, 1], [2, 5], [4, 3]]), torch.rand(3, 2))
        self.assertTrue(torch.equal(plug.tessera_experts(module, *inputs),
                                    moe.batched_mm_experts_forward(module, *inputs)))
        self.assertEqual([row.why for row in plug.tessera_report(clear=True)],
                         ["the experts are spread over processes"])


class Layers(unittest.TestCase):
    def test_a_norm_that_computes_something_else_is_left_alone(self):
        config = transformers.GemmaConfig(
            hidden_size=64, intermediate_size=112, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=97)
        torch.manual_seed(SEED)
        model = transformers.GemmaForCausalLM(config).eval()  # whose norms have 1 + weight
        ids = torch.randint(1, 97, (1, 6))
        with torch.no_grad():
            expected = model(ids).logits
            found, _ = plug.use_tessera(model)
            torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)
        norms = [row for row in found if row.kind == "RMSNorm"]
        self.assertEqual(len(norms), 3)
        for row in norms:
            self.assertIn("its own result differs", row.note)
        self.assertTrue(all(not row.note for row in found if row.kind == "GatedMLP"))

    def test_hooks_and_replaced_forwards_are_left_alone(self):
        model = models.made(models.llama, SEED)
        model.model.norm.register_forward_hook(lambda *_: None)
        mlp = model.model.layers[0].mlp
        mlp.forward = mlp.forward
        notes = {row.name: row.note for row in plug.use_tessera(model, linear=False)[0]}
        self.assertEqual(notes["model.norm"], "it has hooks")
        self.assertEqual(notes["model.layers.0.mlp"], "its forward was replaced by another one")

    def test_a_hook_of_the_gate_sees_the_gate(self):
        model = models.made(models.llama, SEED)
        other = copy.deepcopy(model)
        plug.use_tessera(other)
        seen = [[], []]
        ids = torch.randint(1, 97, (1, 6))
        for each, results in zip((model, other), seen):
            each.model.layers[0].mlp.gate_proj.register_forward_hook(
                lambda module, inputs, result, results=results: results.append(result))
            with torch.no_grad():
                each(ids)
        torch.testing.assert_close(seen[1][0], seen[0][0], rtol=1e-4, atol=1e-4)

    def test_the_type_stays_what_it_was(self):
        model = models.made(models.llama, SEED)
        former = type(model.model.norm)
        plug.use_tessera(model)
        self.assertIsInstance(model.model.norm, former)
        self.assertEqual(type(model.model.norm).__name__, former.__name__)
        self.assertIsNot(type(model.model.norm), former)


if __name__ == "__main__":
    unittest.main()
