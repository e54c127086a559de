#!/bin/sh
# Tests Tessera on a machine with an AMD GPU, measures it, trains a model for it, and packs what it
# found into one file that can be sent back. ./dev check-amd calls it.
#   tools/check_amd.sh BUILD [MINUTES] [OUT]
# BUILD is a build folder, MINUTES the time of the sweep (30), OUT the folder of the results
# (BUILD/amd_report). A second run goes on with the sweep. No setting of the GPU is changed.
set -eu
build=$(cd "${1:?the build folder}" && pwd)
minutes=${2:-30}
case $minutes in
  '' | *[!0-9]* | 0)
    echo "check-amd: MINUTES must be a whole number of at least 1, got '$minutes'" >&2
    exit 2
    ;;
esac
mkdir -p "${3:-$build/amd_report}"
out=$(cd "${3:-$build/amd_report}" && pwd)
tessera="$build/bin/tessera"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$out/kernel-cache}"
summary="$out/summary.txt"
failed=0

note() { echo "$*" | tee -a "$summary"; }
stop() {
  echo "check-amd: $*" >&2
  exit 1
}
need() {
  command -v "$1" >/dev/null 2>&1 || stop "this needs '$1', which is not installed"
}
# step NAME COMMAND...: what it prints goes to NAME.txt; a failure is noted, and the rest goes on.
step() {
  name=$1
  shift
  note "== $name: $*"
  began=$(date +%s)
  if "$@" </dev/null >"$out/$name.txt" 2>&1; then
    note "   passed after $(($(date +%s) - began)) s: $(tail -1 "$out/$name.txt")"
  else
    failed=1
    note "   FAILED after $(($(date +%s) - began)) s: $(tail -1 "$out/$name.txt")"
  fi
}

need python3
[ -x "$tessera" ] || stop "there is no $tessera; './dev build' makes it"

# The first AMD row that runs here, or why none does.
"$tessera" targets --json >"$out/targets.json" || stop "'tessera targets' failed"
target=$(python3 - "$out/targets.json" <<'PY'
import json, sys
rows = [r for r in json.load(open(sys.argv[1]))["targets"] if r["backend"] == "hip"]
runs = [r for r in rows if r["runs_here"]]
print(runs[0]["name"] if runs else "")
sys.stderr.write("" if runs else f"check-amd: no AMD GPU can be used here: {rows[-1]['why_not']}\n")
PY
)
[ -n "$target" ] || exit 1

: >"$summary"
note "Tessera on $target, $(date -u '+%Y-%m-%d %H:%M:%S') UTC"
step version "$tessera" version
step doctor "$tessera" doctor
step system uname -srm
for file in /opt/rocm/.info/version /sys/module/amdgpu/version; do
  [ ! -r "$file" ] || note "$file: $(cat "$file")"
done

# Tests that launch kernels on a GPU, then every shipped kernel against the fp64 reference.
step tests ctest --test-dir "$build" -L hip --output-on-failure --no-tests=ignore
for op in gemm conv fmha norm route; do
  for set in $("$tessera" list --op "$op" --sets | grep '_essential$'); do
    "$tessera" list --target "$target" --op "$op" --preselected "$set" >/dev/null 2>&1 || continue
    step "verify_${op}_$set" "$tessera" verify --target "$target" --op "$op" --preselected "$set"
  done
done

# What is learned: the operation, its list of problems, and the word before the type in the model's
# name and key, if there is one. Normalisations have few kernels and no model.
learned='gemm wide
conv nets forward_
conv nets backward_data_
conv nets backward_weight_
fmha forward forward_
fmha backward backward_'

# The same problems everywhere, so that results of two machines can be compared. What is unseen
# only scores the model.
types="fp16 bf16"
: >"$out/problems.txt"
echo "$learned" | cut -d' ' -f1,2 | sort -u >"$out/lists.txt"
while read -r op list; do
  for type in $types; do
    for part in "" --unseen; do
      # shellcheck disable=SC2086
      "$tessera" problems "$list" $part --op "$op" --dtype "$type" --target "$target" \
        >>"$out/problems.txt"
    done
  done
done <"$out/lists.txt"
# Every prefix of a set is a fair sample: operations and types take turns.
sort -R --random-source=/dev/zero "$out/problems.txt" >"$out/mixed.txt"
step sweep "$tessera" sweep --target "$target" --problems "$out/mixed.txt" --kernels all-legal \
  --store "$out/sweep.sqlite" --budget "${minutes}m"
step data "$tessera" data check "$out/sweep.sqlite"

echo "$learned" >"$out/learned.txt"
while read -r op _ word; do
  for type in $types; do
    name="${op}_${target}_$word$type"
    step "train_$name" "$tessera" train --op "$op" --data "$out/sweep.sqlite" \
      --dtype "$word$type" --output "$out/models/$name"
    [ -e "$out/models/$name/manifest.json" ] || continue
    step "evaluate_$name" "$tessera" evaluate --model "$out/models/$name" \
      --data "$out/sweep.sqlite" --unseen --by shape
  done
done <"$out/learned.txt"

report="$build/amd_report_${target}_$(date -u +%Y%m%d).tar.gz"
(cd "$out" && tar czf "$report" --exclude=kernel-cache --exclude=mixed.txt --exclude=lists.txt \
  --exclude=learned.txt -- *)
note "The report is $report; docs/amd.md says what is in it and where to send it."
[ $failed = 0 ] || stop "a step failed; $summary says which"
