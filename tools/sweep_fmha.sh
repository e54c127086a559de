#!/bin/sh
# Measures attention on a machine with a Hopper GPU, to learn from:
#   tools/sweep_fmha.sh BUILD OUT LIST SHARD/SHARDS
# BUILD is a build folder (a copy of its bin and src will do). LIST is forward, decode or backward;
# its problems to learn from and its unseen ones are measured together, in bf16, with all legal
# kernels. OUT gets LIST_SHARDofSHARDS.sqlite.gz, which `tessera data merge` joins once unpacked,
# and a .json that says what remains. A part takes at most 8 minutes. The same command goes on with
# what OUT holds.
set -eu
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
list=$3
shard=$4
case $list in
  forward | decode | backward) ;;
  *) echo "sweep_fmha.sh: LIST must be forward, decode or backward, got $list" >&2; exit 2 ;;
esac
export LD_LIBRARY_PATH="$build/src:$build/lib:${LD_LIBRARY_PATH:-}"
tessera="$build/bin/tessera"
target=${SWEEP_TARGET:-sm90a}
dtype=${SWEEP_DTYPE:-bf16}
budget=${SWEEP_BUDGET:-430s}
name="${list}_$(echo "$shard" | sed 's|/|of|')"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$work/kernel-cache}"

for side in "" --unseen; do
  # shellcheck disable=SC2086 # no word where there is no side
  "$tessera" problems "$list" --op fmha --target "$target" --dtype "$dtype" $side
done >"$work/problems.txt"
if [ -f "$out/$name.sqlite.gz" ]; then gunzip -c "$out/$name.sqlite.gz" >"$work/$name.sqlite"; fi
# A last problem may take 30 s past the budget.
timeout 475 "$tessera" sweep --problems "$work/problems.txt" --kernels all-legal \
  --target "$target" --store "$work/$name.sqlite" --shard "$shard" --budget "$budget" --json \
  >"$out/$name.json" || echo "sweep_fmha.sh: the sweep ended with status $?" >&2
"$tessera" data describe "$work/$name.sqlite"
gzip -9 <"$work/$name.sqlite" >"$out/$name.sqlite.gz.part"
mv "$out/$name.sqlite.gz.part" "$out/$name.sqlite.gz"
cat "$out/$name.json"
ls -l "$out/$name.sqlite.gz"
