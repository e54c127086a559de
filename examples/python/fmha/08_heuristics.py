"""Which kernel attends and why: prompts, tokens and pages, on this machine and on GPUs far away."""
import tessera

LINES = {
    "a prompt": "heads=16 heads_kv=4 seqlen_q=1024 seqlen_k=1024 hdim=128 mask=top_left",
    "a token": "batch=4 heads=16 heads_kv=4 seqlen_q=1 seqlen_k=8192 hdim=128",
    "a token over pages": "batch=4 heads=16 heads_kv=4 seqlen_q=1 seqlen_k=8192 hdim=128 "
                          "lengths=padded pages=table page_size=16",
    "latent vectors": "heads=16 heads_kv=1 seqlen_q=1 seqlen_k=4096 hdim=576 hdim_v=512",
    "new keys": "kind=append heads=16 heads_kv=4 seqlen_q=1 seqlen_k=8192 hdim=128 rotary=half",
}
for what, fields in LINES.items():
    print(f"{what}:")
    for target in ("avx2", "avx512", "sm90a"):
        decision = tessera.select(f"fmha dtype=bf16 {fields}", target=target)
        print(f"  {target:7} {decision['kernel']}  ({decision['source']}, "
              f"{decision['predicted_seconds'] * 1e6:.1f} us)")
        assert decision["kernel"].endswith("_" + target)

line = f"fmha {LINES['a prompt']}"
print(tessera.explain(line))
considered = tessera.select(line)["considered"]
legal = [row["kernel"] for row in considered if not row["refusal"]]
refused = [row for row in considered if row["refusal"]]
assert legal and tessera.select(line, force=legal[-1])["kernel"] == legal[-1]
print(f"{len(legal)} legal, {len(refused)} refused; forced: {legal[-1]}")

# A kernel that cannot serve the problem is refused with the reason.
try:
    tessera.select(line, force=tessera.select(f"fmha {LINES['new keys']}")["kernel"])
except tessera.Error as error:
    print(f"{error.code}: {error}")
else:
    raise SystemExit("a kernel that appends was chosen for attention")
