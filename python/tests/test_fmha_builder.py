"""The problem builder, plans' stages, and choosing by length."""
import inspect
import unittest

import tessera

from support import Case


def standard():
    return tessera.FmhaProblemBuilder().data_type("bf16").dims(128, 64, 2, 300, 400).nheads(8, 2)


class Builder(Case):
    def test_lines(self):
        common = "fmha batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=400 hdim=128 hdim_v=64 "
        rows = [
            (lambda b: b, "dtype=bf16"),
            (lambda b: b.mask_type(2).lse(True), "mask=bottom_right lse=1 dtype=bf16"),
            (lambda b: b.bias_type("alibi").dropout(True), "bias=alibi p_drop=0.2 dtype=bf16"),
            (lambda b: b.logits_soft_cap(True, 50), "soft_cap=50 dtype=bf16"),
            (lambda b: b.api_family("fwd_splitkv").num_splits(3), "num_splits=3 dtype=bf16"),
            (lambda b: b.paged_kv(True).kv_cache("linear", "sglang_1d", 16),
             "pages=list page_size=16 dtype=bf16"),
        ]
        for call, line in rows:
            self.assertEqual(call(standard()).build(), tessera.Problem(common + line))

    def test_every_documented_setter(self):
        documented = ("api_family kernel_family gfx_arch data_type dims nheads mask_type bias_type "
                      "lse dropout qscale_type rope_type logits_soft_cap v_rowmajor group_mode "
                      "paged_kv fp8_static_quant skip_min_seqlen_q sink kv_cache window sink_size "
                      "max_seqlen num_splits bwd_flags build").split()
        self.assertEqual(len(documented), 26)
        values = {"api_family": "fwd", "kernel_family": "fwd", "gfx_arch": "avx2",
                  "data_type": "fp8", "dims": (64, 64, 1, 8, 8), "nheads": (1, 1), "kv_cache":
                  ("linear", "vllm_2d", 1), "qscale_type": "pertensor", "rope_type": "none",
                  "window": (1, 1), "max_seqlen": (8, 8), "bwd_flags": (False, True, False),
                  "mask_type": "generic", "bias_type": "no", "skip_min_seqlen_q": True,
                  "sink_size": 1, "num_splits": 1}
        builder = tessera.FmhaProblemBuilder()
        for name in documented[:-1]:
            self.assertTrue(inspect.isfunction(getattr(tessera.FmhaProblemBuilder, name)))
            value = values.get(name, True)
            value = value if isinstance(value, tuple) else (value,)
            self.assertIs(getattr(builder, name)(*value), builder)
        line = builder.build().line
        for word in ("qscale=per_tensor", "window_left=1", "sink=1", "lse=1", "random=1",
                     "soft_cap=30", "lengths=packed", "skip_q=1", "pages=table", "num_splits=1"):
            self.assertIn(word, line)
        self.assertEqual(builder.target, "avx2")

    def test_gradients(self):
        common = "fmha kind=backward batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=400 hdim=128 "
        backward = standard().api_family("bwd").lse(True)
        self.assertEqual(backward.build(), tessera.Problem(common + "hdim_v=64 dtype=bf16"))
        backward.bias_type("elementwise").bwd_flags(True, False, True)
        self.assertEqual(backward.build(), tessera.Problem(
            common + "hdim_v=64 dtype=bf16 bias=elementwise dbias=1"))
        backward.dropout(True).bwd_flags(True, True, True)
        self.assert_refused("store_randval must be false with api_family=bwd", backward.build)

    def test_deterministic_is_kept_for_a_dispatcher(self):
        builder = standard()
        self.assertIs(builder.deterministic, False)
        self.assertIs(builder.bwd_flags(False, False, True).deterministic, True)

    def test_a_dispatcher_of_another_choice_refuses(self):
        problem = standard().data_type("fp32").bwd_flags(False, False, True).build()
        self.assert_refused("the dispatcher was made without deterministic",
                            tessera.Dispatcher(threads=1).plan, problem)
        self.assertTrue(tessera.Dispatcher("sm90a", deterministic=True).select(problem)["kernel"])
        problem = standard().gfx_arch("avx2").build()
        self.assert_refused("ask for the target 'avx2', and the dispatcher is for 'sm90a'",
                            tessera.Dispatcher("sm90a").select, problem)
        self.assertTrue(tessera.Dispatcher("avx2").select(problem)["kernel"])

    def test_refusals(self):
        b = tessera.FmhaProblemBuilder
        self.assert_refused("dims needs hdim_q, hdim_v and batch of at least 1, got 0, 0 and 0",
                            b().build)
        self.assert_refused("group_mode needs max_seqlen with q of at least 1, got 0",
                            standard().group_mode(True).build)
        self.assert_refused(r"needs lse\(true\), which the forward pass stored, got false",
                            standard().api_family("bwd").build)
        self.assert_refused("unknown mask_type '7'", standard().mask_type(7).build,
                            code="parse_error")
        self.assert_refused("setters take words, numbers", standard().lse(object()).build)


class Plans(Case):
    def test_stages(self):
        d = tessera.Dispatcher(threads=1)
        plan = d.plan("norm kind=softmax rows=8 columns=8")
        self.assertEqual(plan.stages, [{"name": "normalise", "entry": plan.kernel, "parts": 1}])
        plan = d.plan("fmha kind=backward heads=1 seqlen_q=8 seqlen_k=8 hdim=16")
        self.assertEqual([stage["name"] for stage in plan.stages], ["dq dk dv"])

    def test_set_timing(self):
        d = tessera.Dispatcher(threads=1)
        d.set_timing(1, 4)
        plan = d.plan("norm kind=softmax rows=8 columns=8")
        self.assertEqual(len(plan.bench()["seconds"]), 4)
        self.assertEqual(len(plan.bench(rounds=2)["seconds"]), 2)
        self.assert_refused("must be at least 1, got 0 and 3", d.set_timing, 0, 3)

    def test_batch_invariant(self):
        """A batch of any size gets one kernel where its kernels are orders of their own."""
        line = "fmha dtype=bf16 heads=32 heads_kv=8 hdim=128 seqlen_q=1 seqlen_k=4096 batch={}"
        d = tessera.Dispatcher("sm90a", batch_invariant=True)
        kernels = {d.select(line.format(batch))["kernel"] for batch in (1, 7, 100)}
        self.assertEqual(len(kernels), 1)
        self.assertIn("which was chosen for any batch", d.select(line.format(1))["why"])

    def test_by_length(self):
        d = tessera.Dispatcher("sm90a", by_length=True)
        decision = d.select("fmha heads=8 seqlen_q=1 seqlen_k=4096 hdim=64 dtype=bf16")
        self.assertIn("the length that it is tuned for, 16, suits 1", decision["why"])
        self.assertEqual(decision["source"], "first_legal")


if __name__ == "__main__":
    unittest.main()
