"""Attention over prompts (prefill), beside NumPy: the largest error and the time.

An argument is the target of the timed layer: sm90a times it on a GPU, with 2048 tokens in place of
256.
"""
import sys
import time

import numpy as np

import tessera

random = np.random.default_rng(0)
batch, heads, tokens, hdim = 2, 8, 128, 64
# Tokens before heads, as a projection of the tokens gives them.
q, k, v = (random.standard_normal((batch, tokens, heads, hdim), dtype=np.float32) for _ in "qkv")


def plain(q, k, v):
    """The definition, in float64, one token behind the other unseen."""
    q, k, v = (x.astype("float64").swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(1, 2)


out = tessera.attention(q, k, v, mask="top_left")  # builds the kernel, unless it was built before
start = time.perf_counter()
out = tessera.attention(q, k, v, mask="top_left", out=out)
mine = time.perf_counter() - start
start = time.perf_counter()
wanted = plain(q, k, v)
numpys = time.perf_counter() - start
error = abs(out - wanted).max()
print(f"{batch} prompts of {tokens} tokens, {heads} heads of {hdim}: {out.size} elements, "
      f"largest error {error:.1e}, {mine * 1e3:.2f} ms beside {numpys * 1e3:.2f} ms of NumPy's")
assert error < 1e-5

narrow = tessera.attention(*(x.astype("float16") for x in (q, k, v)), mask="top_left")
error = abs(narrow - wanted).max()
print(f"the same in float16: largest error {error:.1e}")
assert error < 5e-3

here = tessera.Dispatcher(*sys.argv[1:])
length = 256 if here.target["backend"] == "cpu" else 2048
problem = tessera.attention_problem(batch=1, heads=heads, seqlen_q=length, seqlen_k=length,
                                    hdim=hdim, dtype="fp16", mask="top_left")
plan = here.plan(problem)
result = plan.bench(rounds=5)  # on random operands; the result is verified first
print(f"{problem}: {result['median_seconds'] * 1e6:.1f} us, {result['gflops']:.1f} GFLOP/s by "
      f"{plan.kernel}")

try:
    tessera.attention(q, k[:, 1:], v)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("keys and values of two lengths were accepted")
