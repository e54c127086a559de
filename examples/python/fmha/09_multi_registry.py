"""Two registries, for prompts and for single tokens: built, merged, filtered, as pools."""
from definition import attend, check, draw

import tessera

prompt = tessera.attention_problem(batch=1, heads=4, seqlen_q=64, seqlen_k=64, hdim=64,
                                   mask="top_left")
token = tessera.attention_problem(batch=1, heads=4, seqlen_q=1, seqlen_k=64, hdim=64)
of_prompts = tessera.Registry("prompts").declare(
    tessera.KernelSet("prompts").for_problem(prompt, best=1))
of_tokens = tessera.Registry("tokens").declare(
    tessera.KernelSet("tokens").for_problem(token, best=1))

together = tessera.Registry("together").merge(of_prompts).merge(of_tokens)
print(f"{len(of_prompts)} + {len(of_tokens)} kernels, {len(together)} together")
assert len(together) == len(of_prompts) + len(of_tokens)
assert len(together.filter("fmha_*_masked_*")) == len(of_prompts)

q, k, v = draw(0, 1, 1, 64, 4, 4, 64)
pool = tessera.Dispatcher(pool=of_tokens)
assert pool.select(token)["kernel"] in [row["kernel"] for row in of_tokens.list()]
check("a token from the registry of tokens", tessera.attention(q, k, v, dispatcher=pool),
      attend(q, k, v), 1e-5)

# A pool without a kernel for the problem says so, and nothing else is built.
try:
    pool.select(prompt)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("kernels without a mask were taken for a prompt")
