"""Which kernel and why: for this machine, for GPUs that are far away, and forced by name."""
import tessera

LINE = "gemm m=512 n=512 k=512 dtype=bf16"
print(tessera.explain(LINE))
print()
for target in ("avx2", "avx512", "sm90a"):
    decision = tessera.select(LINE, target=target)
    print(f"{target:7} {decision['kernel']}  ({decision['source']}, "
          f"{decision['predicted_seconds'] * 1e6:.1f} us)")
    assert decision["kernel"].endswith("_" + target)

considered = tessera.select(LINE)["considered"]
refused = [row for row in considered if row["refusal"]]
print(f"{len(considered) - len(refused)} legal, {len(refused)} refused, for example: "
      f"{refused[0]['refusal']}")

second = considered[1]["kernel"]
assert tessera.select(LINE, force=second)["kernel"] == second
print("forced:", second)
try:
    tessera.select(LINE, force=refused[0]["kernel"])
except tessera.Error as error:
    print(f"{error.code}: {error}")
else:
    raise SystemExit("a refused kernel was chosen")
