"""Fourteen named configurations of attention forward against PyTorch in fp64.

The names are those of a suite that other attention libraries are measured by. PyTorch drops other
weights, so that its result is made with those that were kept here. Where PyTorch is not installed
the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them. TESSERA_TEST_SEED=N repeats a run.
"""
import math
import unittest
from typing import Any, NamedTuple, Optional

from test_torch import DEVICES, SEED, wide
from test_torch_attention import Attended, bound_of, repeated

import torch
import torch.nn.functional as functional

import tessera.torch

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


def setUpModule():
    print(f"test_torch_attention_parity: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, "
          f"{DEVICES}")


class Config(NamedTuple):
    """Sizes, and what attention() is asked besides. batch, heads, heads_kv, queries, keys."""

    name: str
    dtype: Any
    sizes: Any = (2, 4, 4, 64, 64)
    hdim: int = 64
    hdim_v: Optional[int] = None
    ask: Any = {}  # of attention(), by name
    added: Optional[str] = None  # "bias", "slopes"
    lengths: Optional[str] = None  # "packed", "padded"
    page: Optional[int] = None  # tokens of a page, where keys lie in pages


CONFIGS = (
    Config("basic_fp16", HALF),
    Config("basic_bf16", BRAIN, (2, 4, 4, 128, 128), 128),
    Config("causal", HALF, (2, 4, 4, 70, 70), ask={"mask": "top_left"}),
    Config("causal_bottom_right", BRAIN, (2, 4, 4, 33, 90), ask={"mask": "bottom_right"}),
    Config("window", HALF, (1, 4, 4, 96, 96), ask={"mask": "bottom_right", "window": (20, 3)}),
    Config("bias", HALF, (2, 4, 4, 50, 77), added="bias"),
    Config("alibi", BRAIN, (2, 4, 4, 64, 80), added="slopes"),
    Config("gqa", BRAIN, (2, 8, 2, 40, 72), 128, ask={"mask": "bottom_right"}),
    Config("unequal_hdims", BRAIN, (1, 4, 4, 48, 65), 192, 128, ask={"mask": "top_left"}),
    Config("group_mode", HALF, (5, 4, 2, 40, 60), ask={"mask": "bottom_right"}, lengths="packed"),
    Config("paged_kv", BRAIN, (4, 4, 2, 40, 60), ask={"mask": "bottom_right"}, lengths="padded",
           page=16),
    Config("logits_soft_cap", HALF, (2, 4, 4, 40, 72), ask={"soft_cap": 5.0, "scale": 0.5}),
    Config("sink_tokens", HALF, (2, 4, 4, 80, 80),
           ask={"mask": "top_left", "window": (11, 0), "sink": 4}),
    Config("dropout", FULL, (2, 4, 4, 40, 72), ask={"dropout": 0.2, "seed": 7}),
)


def seen(config, queries, keys, device):
    """Which keys each query sees."""
    shift = keys - queries if config.ask.get("mask") == "bottom_right" else 0
    diagonal = torch.arange(queries, device=device)[:, None] + shift
    key = torch.arange(keys, device=device)
    if "mask" not in config.ask:
        return torch.ones(queries, keys, dtype=torch.bool, device=device)
    left, right = config.ask.get("window", (-1, 0))
    near = (key >= diagonal - left) | (key < config.ask.get("sink", 0)) | (left < 0)
    return near & (key <= diagonal + right)


def added_scores(config, added, queries, keys):
    """What is added to the scores, in fp64: (heads, queries, keys) or None."""
    if added is None:
        return None
    if config.added == "bias":
        return wide(added)
    far = (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)).abs()
    return -wide(added)[:, None, None] * far.to(added.device)


def by_torch(config, q, k, v, added, factors):
    """One sequence, heads first, in fp64, and the log-sum-exp. factors: what dropout multiplies
    weights with, or None."""
    q, k, v = wide(q), repeated(wide(k), q.shape[-3]), repeated(wide(v), q.shape[-3])
    mask = seen(config, q.shape[-2], k.shape[-2], q.device)
    more = added_scores(config, added, q.shape[-2], k.shape[-2])
    scale, cap = config.ask.get("scale", q.shape[-1]**-0.5), config.ask.get("soft_cap")
    scores = q @ k.mT * scale
    if cap is not None or factors is not None:  # which PyTorch's function does not take
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        weights = scores.softmax(-1)
        out = (weights if factors is None else weights * factors) @ v
    else:
        bias = torch.zeros((), dtype=torch.float64, device=q.device) if more is None else more
        out = functional.scaled_dot_product_attention(
            q, k, v, bias.masked_fill(~mask, float("-inf")), scale=scale)
    scores = (scores if more is None else scores + more).masked_fill(~mask, float("-inf"))
    return out, scores.logsumexp(-1)


class Parity(Attended):
    def lengths_of(self, config, longest):
        """One sequence is as long as can be, and one has a single token."""
        batch = config.sizes[0]
        if config.lengths is None:
            return [longest] * batch
        return [longest, 1] + [self.random.randint(0, longest) for _ in range(batch - 2)]

    def tokens(self, config, of_q, of_k, device):
        """q, k and v with tokens before heads: a batch, padded or packed."""
        _, heads, heads_kv, queries, keys = config.sizes
        hdim_v = config.hdim_v or config.hdim
        for lengths, longest, of_heads, hdim in (
                (of_q, queries, heads, config.hdim), (of_k, keys, heads_kv, config.hdim),
                (of_k, keys, heads_kv, hdim_v)):
            places = (sum(lengths),) if config.lengths == "packed" else (len(lengths), longest)
            yield self.draw(*places, of_heads, hdim, device=device, dtype=config.dtype)

    def added_of(self, config, device):
        _, heads, _, queries, keys = config.sizes
        if config.added == "bias":
            return self.draw(heads, queries, keys, device=device, dtype=config.dtype)
        if config.added == "slopes":
            return torch.rand(heads, device=device)
        return None

    def one_sequence(self, config, tensor, lengths, index):
        if config.lengths == "packed":
            first = sum(lengths[:index])
            return tensor[first:first + lengths[index]].transpose(-2, -3)
        return tensor[index, :lengths[index]].transpose(-2, -3)

    def assert_parity(self, config, device):
        of_q, of_k = (self.lengths_of(config, longest) for longest in config.sizes[3:])
        q, k, v = self.tokens(config, of_q, of_k, device)
        added = self.added_of(config, device)
        ask = dict(config.ask, **({config.added: added} if config.added else {}))
        for name, lengths in (("seqlens_q", of_q), ("seqlens_k", of_k)):
            if config.lengths == "packed":
                lengths = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
            if config.lengths is not None:
                ask[name] = torch.tensor(lengths, device=device)
        out, lse, *random = tessera.torch.attention(
            q, *self.caches(config, k, v, ask), return_lse=True,
            return_random="dropout" in ask, **ask)
        self.assertEqual(out.dtype, config.dtype)
        for i, queries in enumerate(of_q):
            part = [self.one_sequence(config, x, lengths, i)
                    for x, lengths in ((q, of_q), (k, of_k), (v, of_k), (out, of_q))]
            first = sum(of_q[:i])
            packed = config.lengths == "packed"
            sums = lse[:, first:first + queries] if packed else lse[i, :, :queries]
            with self.subTest(sequence=i, queries=queries, keys=of_k[i]):
                self.assert_sequence(config, part, sums, added, *(x[i] for x in random))

    def caches(self, config, k, v, ask):
        """k and v, or caches that hold their pages in any order and NaN elsewhere, with a table in
        what is asked."""
        if config.page is None:
            return k, v
        batch, keys = k.shape[:2]
        entries = -(-keys // config.page)
        pages = torch.randperm(batch * entries + 3)[:batch * entries].view(batch, entries)
        ask["page_table"] = pages.int().to(k.device)
        found = []
        for x in (k, v):
            cache = torch.full((batch * entries + 3, config.page, *x.shape[2:]), math.nan,
                               dtype=x.dtype, device=x.device)
            for b in range(batch):
                for token in range(keys):
                    cache[pages[b, token // config.page], token % config.page] = x[b, token]
            found.append(cache)
        return found

    def assert_sequence(self, config, part, lse, added, random=None):
        q, k, v, out = part
        if q.numel() == 0:
            return
        if k.shape[-2] == 0 or q.shape[-2] <= config.ask.get("skip_q", 0):
            self.assertTrue((out == 0).all() and torch.isneginf(lse).all())
            return
        factors = None
        if random is not None:
            kept = round(256 * (1 - config.ask["dropout"]))
            factors = torch.where(random < kept, 256 / kept, 0.0).double()
            self.assertTrue(0 < int((factors == 0).sum()) < factors.numel())
        wanted, sums = by_torch(config, q, k, v, added, factors)
        scores = added_scores(config, added, q.shape[-2], k.shape[-2])
        blind = ~seen(config, q.shape[-2], k.shape[-2], q.device).any(-1)
        self.assertTrue((out[:, blind] == 0).all() and torch.isneginf(lse[:, blind]).all())
        bound = bound_of(q, k, v, config.ask.get("scale"), scores, config.dtype)
        bound = bound if factors is None else bound * float(factors.max())
        self.assert_close(out[:, ~blind], wanted[:, ~blind], bound)
        # The sum of exponentials has no rounding to the narrow type.
        loose = bound_of(q, k, torch.ones_like(v), config.ask.get("scale"), scores, FULL)
        sums = sums[:, ~blind]
        self.assert_close(lse[:, ~blind], sums, loose + 2.0**-20 * (1 + sums.abs()))


def add_test(config):
    def test(self):
        for device in DEVICES:
            self.assert_parity(config, device)
    test.__name__ = f"test_{config.name}"
    setattr(Parity, test.__name__, test)


for _config in CONFIGS:
    add_test(_config)
del _config


class EightBits(Attended):
    """Against PyTorch's attention of what the numbers stand for, in fp32 and wider."""

    def quantised(self, dtype, *shape, device):
        return torch.randn(*shape, device=device).to(dtype)

    def factors(self, *shape, device):
        return 0.5 + 1.5 * torch.rand(*shape, device=device)

    def assert_parity(self, dtype, factors, device, **how):
        """factors: of q, k and v, (batch, heads, tokens, 1) or numbers."""
        q, k, v = (self.quantised(dtype, 2, tokens, heads, 32, device=device)
                   for tokens, heads in ((40, 4), (150, 2), (150, 2)))
        out = tessera.torch.attention(q, k, v, mask="bottom_right", **how)
        self.assertEqual(out.dtype, how.get("out_dtype", HALF))
        q, k, v = (x.float().transpose(1, 2) * by for x, by in zip((q, k, v), factors))
        k, v = repeated(k, 4), repeated(v, 4)
        seen = torch.ones(40, 150, dtype=torch.bool, device=device).tril(110)
        expected = functional.scaled_dot_product_attention(q, k, v, seen)
        bound = 2 * bound_of(q, k, v, None, None, out.dtype)  # PyTorch's has one of its own
        self.assert_close(out.transpose(1, 2), wide(expected), bound)

    def test_factors_of_tensors(self):
        for device in DEVICES:
            for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
                self.assert_parity(dtype, (0.5, 2.0, 1.5), device, descale_q=0.5, descale_k=2.0,
                                   descale_v=torch.tensor(1.5, device=device))

    def test_factors_of_blocks(self):
        for device in DEVICES:
            of_q = self.factors(2, 4, 2, device=device)
            of_k, of_v = (self.factors(2, 2, 3, device=device) for _ in "kv")
            spread = [by.repeat_interleave(block, -1)[..., :tokens, None]
                      for by, block, tokens in ((of_q, 32, 40), (of_k, 64, 150), (of_v, 64, 150))]
            self.assert_parity(torch.float8_e4m3fn, spread, device, descale_q=of_q,
                               descale_k=of_k, descale_v=of_v, scale_block_q=32, scale_block_k=64,
                               out_dtype=FULL)

    def test_results_of_eight_bits(self):
        for device in DEVICES:
            q, k, v = (self.quantised(torch.float8_e5m2, 1, 20, 4, 32, device=device)
                       for _ in "qkv")
            ask = {"descale_q": 1, "descale_k": 1, "descale_v": 3}
            exact = tessera.torch.attention(q, k, v, out_dtype=FULL, **ask)
            for scale_o in (None, 400.0):
                out = tessera.torch.attention(q, k, v, out_dtype=torch.float8_e4m3fn,
                                              scale_o=scale_o, **ask)
                wanted = (exact * (scale_o or 1)).clamp(-448, 448)
                self.assert_close(out.float(), wide(wanted),
                                  2.0**-4 * 1.001 * wide(wanted).abs() + 2.0**-9)

    def test_fake_results(self):
        """They have the shapes and types of the operator's own."""
        q, k, v = (self.quantised(torch.float8_e4m3fn, 1, 8, 2, 16, device="meta") for _ in "qkv")
        for out_dtype in (None, torch.float8_e5m2):
            out = tessera.torch.attention(q, k, v, descale_q=1, descale_k=1, descale_v=1,
                                          out_dtype=out_dtype)
            self.assertEqual((out.shape, out.dtype), (q.shape, out_dtype or HALF))


class Suite(unittest.TestCase):
    def test_fourteen_names(self):
        self.assertEqual(len({config.name for config in CONFIGS}), 14)


if __name__ == "__main__":
    unittest.main()
