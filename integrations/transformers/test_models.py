"""Models of transformers through Tessera, compared with the framework's eager way."""
from __future__ import annotations

import copy
import random
import unittest

import torch
import transformers

import models
import tessera_transformers as plug

SEED = random.SystemRandom().randrange(10**6)
print(f"seed {SEED}, transformers {transformers.__version__}, torch {torch.__version__}")


def prompts(draw: random.Random, batch: int, longest: int):
    """Left-padded prompts of random lengths, and their mask. Some batches have no padding."""
    lengths = [draw.randint(1, longest) for _ in range(batch)]
    if draw.random() < 0.3:
        lengths = [longest] * batch
    width = max(lengths)
    ids = torch.randint(1, models.SMALL[-1], (batch, width))
    mask = torch.ones(batch, width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :width - length] = 0
        mask[row, :width - length] = 0
    return ids, mask


def generated(model, ids, mask, cache: str):
    found = model.generate(ids, attention_mask=mask, max_new_tokens=7, do_sample=False,
                           cache_implementation=cache, output_logits=True,
                           return_dict_in_generate=True)
    return found.sequences[:, ids.shape[1]:], torch.stack(found.logits, 1)


class SameTokens(unittest.TestCase):
    def check_same(self, ours, theirs):
        """Equal tokens, but where eager's own two greatest logits are nearer to each other than its
        roundings: from there on the texts of the row differ."""
        for row in range(theirs[0].shape[0]):
            for step, (a, b) in enumerate(zip(ours[0][row].tolist(), theirs[0][row].tolist())):
                logits = theirs[1][row, step]
                near = 1e-5 * float(logits.abs().max())
                if a != b:
                    self.assertLess(float(logits[b] - logits[a]), near)
                    break
                torch.testing.assert_close(ours[1][row, step], logits, rtol=0, atol=10 * near)

    def run_model(self, name: str, replace, cache: str, seed: int):
        draw = random.Random(seed)
        model = models.made(models.TEXT[name], seed)
        other = copy.deepcopy(model)
        replace(other)
        plug.tessera_report(clear=True)
        for _ in range(3):
            ids, mask = prompts(draw, draw.randint(1, 3), draw.randint(2, 17))
            self.check_same(generated(other, ids, mask, cache), generated(model, ids, mask, cache))
        self.assertEqual(plug.tessera_report(), [])

    def test_attention_alone(self):
        for number, name in enumerate(models.TEXT):
            for cache in ("dynamic", "static"):
                with self.subTest(name=name, cache=cache, seed=SEED):
                    self.run_model(name, lambda model: model.set_attn_implementation("tessera"),
                                   cache, SEED + number)

    def test_all_layers(self):
        for number, name in enumerate(models.TEXT):
            for cache in ("dynamic", "static"):
                with self.subTest(name=name, cache=cache, seed=SEED):
                    self.run_model(name, self.replace_all, cache, SEED + 10 + number)

    def replace_all(self, model):
        found, report = plug.use_tessera(model, rows=16)
        self.assertEqual([row for row in found if row.note], [])
        self.assertEqual([layer.note for layer in report if not layer.kernel], [])


class Logits(unittest.TestCase):
    def check_bf16(self, make, inputs, seed, **more):
        """The model in fp32, with the weights that bf16 has, is the truth. Eager's own distance
        from it in bf16 is what roundings of this type do to this model; ours rounds no more often,
        so that twice that distance is far from what roundings in another order give."""
        narrow = models.made(make, seed, torch.bfloat16, **more)
        truth = copy.deepcopy(narrow).float()
        ours = copy.deepcopy(narrow)
        plug.use_tessera(ours, rows=16)
        plug.tessera_report(clear=True)
        with torch.no_grad():
            expected = truth(**self.as_type(inputs, torch.float32)).logits
            theirs, found = (model(**self.as_type(inputs, torch.bfloat16)).logits.float()
                             for model in (narrow, ours))
        seen = inputs.get("attention_mask")
        keep = torch.ones(expected.shape[:-1], dtype=torch.bool) if seen is None else seen.bool()
        distance = [(logits - expected)[keep].square().mean().sqrt() for logits in (found, theirs)]
        self.assertLess(float(distance[0]), 2 * float(distance[1]))
        self.assertEqual(plug.tessera_report(), [])

    @staticmethod
    def as_type(inputs, dtype):
        return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor
                for name, tensor in inputs.items()}

    def test_bf16_texts(self):
        for number, name in enumerate(models.TEXT):
            # All experts are chosen, because a rounding may choose another one of two near ones.
            more = {"num_experts_per_tok": 4} if name == "mixtral" else {}
            ids, mask = prompts(random.Random(SEED + number), 4, 16)
            with self.subTest(name=name, seed=SEED):
                self.check_bf16(models.TEXT[name], {"input_ids": ids, "attention_mask": mask},
                                SEED + number, **more)

    def test_bf16_images(self):
        torch.manual_seed(SEED)
        self.check_bf16(models.vit, {"pixel_values": torch.randn(3, 3, 48, 48)}, SEED)

    def test_sinks_and_transposed_experts(self):
        model = models.made(models.gpt_oss, SEED)
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
        ids, mask = prompts(random.Random(SEED), 3, 14)
        plug.tessera_report(clear=True)
        with torch.no_grad():
            expected = model(ids, attention_mask=mask).logits[mask.bool()]
            found, _ = plug.use_tessera(model, rows=16)
            self.assertEqual([row for row in found if row.note], [])
            torch.testing.assert_close(model(ids, attention_mask=mask).logits[mask.bool()],
                                       expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
        self.assertEqual(plug.tessera_report(), [])

    def test_fp32_images(self):
        model = models.made(models.vit, SEED)
        images = torch.randn(3, 3, 48, 48)
        with torch.no_grad():
            expected = model(images).logits
            found, _ = plug.use_tessera(model, rows=16)
            self.assertEqual(sum(row.kind == "LayerNorm" and not row.note for row in found), 5)
            found = model(images).logits
            torch.testing.assert_close(found, expected, rtol=0,
                                       atol=1e-4 * float(expected.abs().max()))
            chosen = expected.gather(-1, found.argmax(-1, keepdim=True)).squeeze(-1)
            torch.testing.assert_close(chosen, expected.amax(-1), rtol=0,  # the same classes
                                       atol=2e-4 * float(expected.abs().max()))

    def test_compiled_models_are_one_graph(self):
        """With attention alone, and with all layers, too. Compiled experts are the framework's."""
        for make, is_all in ((models.llama, False), (models.llama, True), (models.qwen3, True),
                             (models.mixtral, True), (models.vit, True)):
            torch._dynamo.reset()
            model = models.made(make, SEED)
            if is_all:
                plug.use_tessera(model, rows=16)
            else:
                model.set_attn_implementation("tessera")
            inputs = (torch.randn(2, 3, 48, 48) if make is models.vit else
                      torch.randint(1, models.SMALL[-1], (2, 9)))
            plug.tessera_report(clear=True)
            made = torch.compile(model, fullgraph=True, backend="aot_eager")
            with torch.no_grad():
                expected = model(inputs).logits
                torch.testing.assert_close(made(inputs).logits, expected, rtol=1e-4,
                                           atol=1e-5 * float(expected.abs().max()))
            self.assertEqual({row.what for row in plug.tessera_report()},
                             {"experts"} if make is models.mixtral else set())

    def test_a_compiled_model_has_no_break(self):
        model = models.made(models.llama, SEED)
        plug.use_tessera(model, rows=16)
        with torch.no_grad():
            found = torch._dynamo.explain(model)(torch.randint(1, models.SMALL[-1], (2, 9)))
        self.assertEqual((found.graph_count, found.graph_break_count), (1, 0))

    def test_gradients_of_a_training_step(self):
        """Attention, norms, products and experts have derivatives."""
        ids = torch.randint(1, models.SMALL[-1], (2, 9))
        model = models.made(models.mixtral, SEED).train().requires_grad_(True)
        other = copy.deepcopy(model)
        plug.use_tessera(other, rows=16)
        for each in (model, other):
            each(ids, labels=ids).loss.backward()
        for (name, theirs), ours in zip(model.named_parameters(), other.parameters()):
            scale = float(theirs.grad.norm())
            self.assertLess(float((ours.grad - theirs.grad).norm()), 1e-3 * scale + 1e-7, name)


if __name__ == "__main__":
    unittest.main()
