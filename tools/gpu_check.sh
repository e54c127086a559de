#!/bin/sh
# Checks and measures the GPU kernels on a machine with a Hopper GPU, in one go of under 9 minutes:
#   tools/gpu_check.sh BUILD OUT
# BUILD is a build folder (a copy of its bin, src and tests will do), OUT gets summary.txt and one
# JSON file per bench. Nothing here changes a setting of the GPU.
set -eu
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
export LD_LIBRARY_PATH="$build/src:$build/lib:${LD_LIBRARY_PATH:-}"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$out/kernel-cache}"
tessera="$build/bin/tessera"
summary="$out/summary.txt"
: >"$summary"

note() { echo "$*" | tee -a "$summary"; }

note "tessera gpu check"
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader |
  tee -a "$summary"

note "== every essential kernel on random odd shapes, against fp64"
if timeout 200 "$build/tests/cuda_gemm_test" >"$out/cuda_test.log" 2>&1; then
  note "passed"
else
  note "FAILED"
fi
grep -E "^\[  (PASSED|FAILED)|seed|kernels, " "$out/cuda_test.log" | sort | uniq -c |
  head -40 | tee -a "$summary"

note "== launches: captured in a graph, cost on the host"
if timeout 60 "$build/tests/cuda_launch_test" >"$out/launch_test.log" 2>&1; then
  note "passed"
else
  note "FAILED"
fi
grep -E "^driver |FAILED" "$out/launch_test.log" | tee -a "$summary"

note "== compute-sanitizer, one kernel per pipeline and class of types"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
for tool in memcheck racecheck; do
  for line in "m=136 n=264 k=200 dtype=bf16" "m=136 n=264 k=208 dtype=fp8" \
    "m=8 n=264 k=512 dtype=bf16" "m=67 n=45 k=33 dtype=bf16" "m=67 n=45 k=33 dtype=int8" \
    "m=67 n=45 k=33 dtype=fp32" "m=520 n=264 k=1001 dtype=bf16" "m=512 n=264 k=1008 dtype=fp8 layout=crr" \
    "m=9 n=130 k=32768 dtype=bf16"; do
    # shellcheck disable=SC2086
    words=$(timeout 60 "$sanitizer" --tool $tool "$tessera" run gemm $line --target sm90a \
      --repeat 1 2>&1 | grep -E "ERROR SUMMARY|RACECHECK SUMMARY" || echo "no summary")
    note "$tool gemm $line: $words"
  done
done

bench() {
  name=$1
  shift
  note "== $name: tessera bench gemm $*"
  timeout 120 "$tessera" bench gemm "$@" --target sm90a --peers cublaslt --json \
    >"$out/$name.json" 2>"$out/$name.err" || note "FAILED: $(tail -1 "$out/$name.err")"
  python3 - "$out/$name.json" <<'PY' | tee -a "$summary"
import json, sys
try:
    report = json.load(open(sys.argv[1]))
    print(json.dumps(report["summary"]))
except Exception as error:
    print("no report:", error)
PY
}
bench llama3_8b_bf16 --shapes llama3_8b --dtype bf16
bench square_bf16 --shapes square_gpu --dtype bf16 --layout rcr
bench skinny_bf16 --shapes skinny --dtype bf16 --layout rcr
bench odd_bf16 --shapes odd_gpu
bench deepseek_v3_bf16 --shapes deepseek_v3
bench square_fp16 --shapes square_gpu --dtype fp16 --layout rcr
bench square_fp8 --shapes square_gpu --dtype fp8 --layout rcr
bench square_int8 --shapes square_gpu --dtype int8 --layout rcr
bench square_tf32 --shapes square_gpu --dtype tf32 --layout rcr
bench llama3_8b_int8 --shapes llama3_8b --dtype int8
bench square_fp32 --shapes square_gpu --dtype fp32 --layout rcr
note "done"
