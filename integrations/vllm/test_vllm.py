"""The functions on a CPU, and the classes against vLLM's own where it is installed, and against a
stand-in of its interface where it is not. The first line that is printed says which."""
from __future__ import annotations

import importlib.util
import math
import random
import types
import unittest

import torch

import stand_in
import tessera_vllm

SEED = random.SystemRandom().randrange(10**6)
if importlib.util.find_spec("vllm") is None:
    stand_in.install()
import vllm  # noqa: E402
from vllm.v1.attention import backend as interface  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402

import tessera_vllm_backend as plug  # noqa: E402
print(f"seed {SEED}, torch {torch.__version__}, vLLM {vllm.__version__}")


def batch_of(draw: random.Random, size: int):
    """Query lengths, key lengths, a table of pages that are in no order, and as many pages."""
    count = draw.randint(1, 4)
    queries = [draw.choice((1, draw.randint(1, 9))) for _ in range(count)]
    keys = [length + draw.randint(0, 20) for length in queries]
    pages = [math.ceil(length / size) for length in keys]
    order = draw.sample(range(sum(pages) + 2), sum(pages))
    table = torch.zeros(count, max(pages), dtype=torch.int32)
    for row, many in enumerate(pages):
        table[row, :many] = torch.tensor([order.pop() for _ in range(many)])
    return queries, keys, table, sum(pages) + 2


def by_hand(q, keys, values, before, scale, causal, window, soft_cap, slopes, sinks):
    """One sequence in float64. q: (queries, heads, hdim); before: keys before the first query."""
    q, keys, values = (tensor.double() for tensor in (q, keys, values))
    groups = q.shape[1] // keys.shape[1]
    keys, values = (tensor.repeat_interleave(groups, 1) for tensor in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q, keys) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    at = torch.arange(q.shape[0])[:, None] + before
    distance = torch.arange(keys.shape[0])[None] - at
    if slopes is not None:
        scores = scores - slopes.double()[:, None, None] * distance.abs()
    if causal:
        scores = scores.masked_fill(distance > 0, float("-inf"))
    if window is not None:
        scores = scores.masked_fill(distance.abs() >= window, float("-inf"))
    if sinks is not None:
        more = sinks.double()[:, None, None].expand(-1, q.shape[0], 1)
        scores = torch.cat([scores, more], -1)
    weights = scores.softmax(-1)[..., :keys.shape[0]]
    return torch.einsum("hqk,khd->qhd", weights, values)


def cache_of(form, pages, size, heads_kv, hdim, dtype):
    """A cache as vLLM before 0.33 gives it, and since then with the heads or the tokens of a page
    first in memory."""
    if form == "before":
        return torch.randn(plug.TesseraBackend.get_kv_cache_shape(
            pages, size, heads_kv, hdim)).to(dtype)
    if form == "heads":
        return torch.randn(pages, heads_kv, size, 2 * hdim).to(dtype)
    return torch.randn(pages, size, heads_kv, 2 * hdim).to(dtype).transpose(1, 2)


COMMON = getattr(interface, "CommonAttentionMetadata", types.SimpleNamespace)
IS_REAL = vllm.__version__ != "stand-in"
FORMS = ("before", "heads", "tokens")


class Backend(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(SEED)

    def run_one(self, draw, dtype, causal, **options):
        size, heads, heads_kv, hdim = draw.choice((4, 16)), 4, 2, 16
        queries, lengths, table, pages = batch_of(draw, size)
        form = draw.choice(FORMS)
        cache = cache_of(form, pages, size, heads_kv, hdim, dtype)
        tokens = sum(queries)
        q = torch.randn(tokens + 3, heads, hdim).to(dtype)  # with room that is padding
        k, v = (torch.randn(tokens + 3, heads_kv, hdim).to(dtype) for _ in range(2))
        slots, starts = [], [0]
        for row, (new, length) in enumerate(zip(queries, lengths)):
            starts.append(starts[-1] + new)
            slots += [int(table[row, at // size]) * size + at % size
                      for at in range(length - new, length)]
        starts_of = torch.tensor(starts, dtype=torch.int32)
        common = COMMON(
            num_actual_tokens=tokens, max_query_len=max(queries), max_seq_len=max(lengths),
            query_start_loc=starts_of, query_start_loc_cpu=starts_of, num_reqs=len(queries),
            seq_lens=torch.tensor(lengths, dtype=torch.int32), block_table_tensor=table,
            slot_mapping=torch.tensor(slots + [-1] * 3), causal=causal)
        metadata = plug.TesseraMetadataBuilder(None, [], None, "cpu").build(0, common)
        scale = 0.3
        impl = plug.TesseraImpl(heads, hdim, scale, heads_kv, **options)
        caches = tessera_vllm.caches_of(cache)
        before, output = [part.clone() for part in caches], torch.full_like(q, 7)
        impl.forward(None, q, k, v, cache, metadata, output)
        self.assertTrue((output[tokens:] == 7).all())
        changed = sum(int((part != former).flatten(2).any(-1).sum())
                      for part, former in zip(caches, before))
        self.assertEqual(changed, 2 * tokens)  # nothing but the new places
        slopes = options.get("alibi_slopes")
        for row, (new, length) in enumerate(zip(queries, lengths)):
            keys, values = (part[table[row].long()].flatten(0, 1)[:length] for part in caches)
            self.assertTrue(torch.equal(keys[length - new:], k[starts[row]:starts[row + 1]]))
            expected = by_hand(q[starts[row]:starts[row + 1]], keys, values, length - new, scale,
                               causal, options.get("sliding_window"),
                               options.get("logits_soft_cap"),
                               None if slopes is None else torch.tensor(slopes),
                               options.get("sinks"))
            bound = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
            torch.testing.assert_close(output[starts[row]:starts[row + 1]].double(), expected,
                                       rtol=bound, atol=bound * float(values.abs().max()))

    def test_batches_of_prompts_and_single_tokens(self):
        draw = random.Random(SEED)
        for dtype in (torch.float32, torch.bfloat16):
            for causal in (True, False):
                for _ in range(2):
                    self.run_one(draw, dtype, causal)

    def test_options(self):
        draw = random.Random(SEED + 1)
        for options in ({"sliding_window": 5}, {"logits_soft_cap": 3.0},
                        {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
                        {"sinks": torch.randn(4)}):
            with self.subTest(options=options):
                self.run_one(draw, torch.float32, True, **options)

    def test_what_is_refused(self):
        for options in ({"attn_type": "encoder_only"}, {"kv_cache_dtype": "fp8"}):
            with self.assertRaises(NotImplementedError):
                plug.TesseraImpl(4, 16, 1.0, 2, **options)
        common = types.SimpleNamespace(causal=torch.tensor([True]))
        with self.assertRaisesRegex(NotImplementedError, "causal"):
            plug.TesseraMetadataBuilder(None, [], None, "cpu").build(0, common)

    def test_an_empty_run_writes_zeros(self):
        output = torch.ones(3, 4, 16)
        impl = plug.TesseraImpl(4, 16, 1.0, 2)
        impl.forward(None, output, None, None, torch.empty(0), None, output)
        self.assertFalse(output.any())

    def test_views_of_caches(self):
        for form in FORMS:
            cache = cache_of(form, 3, 8, 2, 16, torch.float32)
            keys, values = tessera_vllm.caches_of(cache)
            self.assertEqual(keys.shape, (3, 8, 2, 16))
            self.assertEqual(keys.data_ptr(), cache.data_ptr())
            self.assertEqual(values.shape, keys.shape)

    def test_padding_where_no_slot_is_read(self):
        """As a GPU has it, where padding writes again what is there."""
        k = torch.randn(4, 2, 16)
        for slots in ([-1, 5, -1, 9], [-1] * 4, [0, 1, 2, 3]):
            caches = tessera_vllm.caches_of(torch.randn(2, 3, 8, 2, 16))
            found, expected = caches.keys.clone(), caches.keys.clone()
            slots = torch.tensor(slots)
            key, _, page, place = tessera_vllm._without_padding(
                k, k, caches, slots, slots.div(8, rounding_mode="floor"), slots.remainder(8))
            found[page, place] = key
            for token, slot in enumerate(slots.tolist()):
                if slot >= 0:
                    expected[slot // 8, slot % 8] = k[token]
            self.assertTrue(torch.equal(found, expected))


class Registration(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.registered = plug.register()

    def test_backend_is_the_one_that_vllm_finds(self):
        module, name = AttentionBackendEnum.CUSTOM.get_path().rsplit(".", 1)
        self.assertIs(getattr(importlib.import_module(module), name), plug.TesseraBackend)

    def test_operators_compute_what_the_native_ones_do(self):
        ops = vllm.ir.ops
        self.assertEqual(self.registered, ("rms_norm", "fused_add_rms_norm"))
        torch.manual_seed(SEED)
        x, more, weight = torch.randn(5, 32), torch.randn(5, 32), torch.randn(32)
        for dtype in (torch.float32, torch.bfloat16):
            inputs = tuple(tensor.to(dtype) for tensor in (x, more, weight))
            bound = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
            for op, given in ((ops.rms_norm, (inputs[0], inputs[2], 1e-6)),
                              (ops.fused_add_rms_norm, (*inputs, 1e-6))):
                expected = op.impls["native"].impl_fn(*given)
                with op.set_priority(["tessera", "native"]):
                    torch.testing.assert_close(op(*given), expected, **bound)
        self.assertEqual(tessera_vllm.report(clear=True), [])

    def test_what_is_left_to_vllm_is_its_result_and_reported(self):
        op = vllm.ir.ops.rms_norm
        x, weight = torch.randn(5, 32), torch.randn(32)
        for given, why in (((x, weight, 1e-6, 16), "variance_size"),
                           ((x.double(), weight.double(), 1e-6), "torch.float64"),
                           ((x, weight.half(), 1e-6), "weight has the type torch.float16")):
            with op.set_priority(["tessera", "native"]):
                found = op(*given)
            self.assertTrue(torch.equal(found, op.impls["native"].impl_fn(*given)))
            (left,) = tessera_vllm.report(clear=True)
            self.assertEqual((left.what, left.calls), ("rms_norm", 1))
            self.assertIn(why, left.why)

    def test_an_operator_with_other_parameters_is_left_out(self):
        def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x
        ops = types.SimpleNamespace(rms_norm=stand_in.Op(rms_norm))
        self.assertEqual(tessera_vllm.register_ir(ops), ())
        self.assertEqual([(row.what, row.why) for row in tessera_vllm.report(clear=True)],
                         [("rms_norm", "the operator of this vLLM has other parameters"),
                          ("fused_add_rms_norm", "this vLLM has no such operator")])

    def test_what_the_selector_asks(self):
        backend = plug.TesseraBackend
        self.assertEqual([backend.supports_head_size(size) for size in (64, 96, 512, 576)],
                         [True, True, True, False])
        self.assertTrue(backend.supports_sliding_window() and backend.supports_sink())
        self.assertEqual(backend.get_name(), "CUSTOM")
        self.assertIs(backend.get_impl_cls(), plug.TesseraImpl)
        self.assertIs(backend.get_builder_cls(), plug.TesseraMetadataBuilder)

    @unittest.skipIf(not IS_REAL, "vLLM is not installed, and its selector is not in the stand-in")
    def test_the_selector_takes_what_the_backend_can_do(self):
        wishes = dict(head_size=64, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16,
                      use_mla=False, has_sink=True, use_sparse=False, use_mm_prefix=False,
                      use_per_head_quant_scales=False, device_capability=None,
                      attn_type="decoder", has_sliding_window=True, use_non_causal=True,
                      use_batch_invariant=True)
        choose = plug.TesseraBackend.validate_configuration
        self.assertEqual(choose(**wishes), [])
        for wish, why in (({"head_size": 600}, "head_size"), ({"use_mla": True}, "MLA"),
                          ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
                          ({"attn_type": "encoder_only"}, "attention type")):
            (found,) = choose(**{**wishes, **wish})
            self.assertIn(why, found)


if __name__ == "__main__":
    unittest.main()
