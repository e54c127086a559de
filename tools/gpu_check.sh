#!/bin/sh
# Checks and measures the GPU kernels on a machine with a Hopper GPU:
#   tools/gpu_check.sh BUILD OUT [PART]
# BUILD is a build folder (a copy of its bin, src and tests will do). OUT gets PART.txt, a summary,
# and one JSON file per bench. Nothing here changes a setting of the GPU. No part takes more than 9
# minutes; what a bench has measured by then is kept. The parts:
#   gemm             correctness, sanitizers and benches of GEMM beside cuBLASLt (the usual part)
#   gemm-groups      correctness of groups, scales, gates, rows by index, outputs of 8 bits,
#                    contractions, routers and norms
#   gemm-sanitizers  memcheck and racecheck of the same kinds
#   conv             correctness of convolutions; images of more than 2^31 elements (5 minutes)
#   conv-sanitizers  memcheck and racecheck of every essential convolution (9 minutes)
#   conv-DIRECTION-BATCH   dense layers beside cuDNN (6 minutes); DIRECTION is forward,
#                          backward_data or backward_weight, BATCH is 32 or 1
#   conv-drawn-DIRECTION   layers of nets that no model has learned from, drawn by the seed in SEED,
#                          beside cuDNN: of all kinds, grouped ones and stems (9 minutes)
#   conv-DIRECTION-others  grouped and depthwise layers, 3-D and 1-D (7 minutes)
#   fmha             correctness of attention: essential kernels and every pipeline (3 minutes)
#   fmha-sanitizers  memcheck and racecheck of every essential kernel of attention (9 minutes)
#   fmha-prefill     prompts beside cuDNN: d 64, 128 and 256, 512 to 16 k tokens (6 minutes)
#   fmha-decode      one query against 8 k to 128 k keys, beside cuDNN (6 minutes)
#   fmha-drawn       one query against keys of a list that no model has learned from (2 minutes)
# cuDNN lies where NVRTC does, in LD_LIBRARY_PATH, or in the Python environment of VIRTUAL_ENV.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
part=${3:-gemm}
export LD_LIBRARY_PATH="$build/src:$build/lib:${LD_LIBRARY_PATH:-}"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$out/kernel-cache}"
tessera="$build/bin/tessera"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
summary="$out/$part.txt"
begin=$(date +%s)
: >"$summary"

note() { echo "$*" | tee -a "$summary"; }
elapsed() { echo $(($(date +%s) - begin)); }
# limit SECONDS: so many, or what is left of the part's 530 s
limit() {
  left=$((530 - $(elapsed)))
  [ "$left" -gt "$1" ] && left=$1
  [ "$left" -gt 0 ] || left=1
  echo "$left"
}

# gtest SECONDS NAME PROGRAM FILTER
gtest() {
  if timeout "$(limit "$1")" "$build/tests/$3" --gtest_filter="$4" >"$out/$2.log" 2>&1; then
    note "passed after $(elapsed) s"
  else
    note "FAILED after $(elapsed) s"
  fi
  grep -E "^\[  (PASSED|FAILED)|SKIPPED|seed|kernels, |looked at$" "$out/$2.log" | sort | uniq -c |
    head -60 | tee -a "$summary"
}

# bench SECONDS NAME OP ARGUMENTS...
bench() {
  seconds=$1 name=$2
  shift 2
  note "== $name: tessera bench $*"
  timeout "$(limit "$seconds")" "$tessera" bench "$@" --target sm90a --json \
    >"$out/$name.json" 2>"$out/$name.err" || note "FAILED: $(tail -1 "$out/$name.err")"
  python3 - "$out/$name.json" <<'PY' | tee -a "$summary"
import json, sys
try:
    report = json.load(open(sys.argv[1]))
    if "error" in report:
        print("ended early:", report["error"]["message"])
    print(json.dumps(report["summary"]))
    for case in report["cases"]:
        for note in case["notes"]:
            print(f"note: {case['problem']}: {note}")
except Exception as error:
    print("no whole report:", repr(error))
PY
}

# Tests of parts of their own; each pattern is one process, so that they share the card.
grouped_tests='GpuGrouped*:GpuScaled*:GpuOutputs*:GpuArranged*'

gemm_groups_part() {
  note "== groups, scales, outputs and contractions on random odd problems, against fp64"
  (gtest 500 lists cuda_gemm_test 'GpuGroupedLists.*:GpuGrouped.*:GpuGroupedScaled.*') &
  (gtest 500 grouped_outputs cuda_gemm_test 'GpuGroupedOutputs.*') &
  (gtest 500 scaled_outputs cuda_gemm_test 'GpuGroupedScaledOutputs.*:GpuScaledOutputs.*') &
  (gtest 500 scaled cuda_gemm_test 'GpuScaled.*:GpuOutputs.*:GpuArranged.*') &
  (gtest 500 routers cuda_route_test '*') &
  (gtest 500 norms cuda_norm_test '*') &
  wait
}

# One test of each kind under both tools. Racecheck names copies of scales (cp.async) beside their
# readers as hazards, because it does not follow copies that arrive at a barrier
# (docs/performance/hopper_scaled_gemm.md).
gemm_sanitizers_part() {
  for tool in memcheck racecheck; do
    sanitize $tool cuda_gemm_test 'GpuGroupedLists.OfWholeUnits*:GpuGroupedLists.Nan*' lists &
    sanitize $tool cuda_gemm_test 'GpuGrouped.Nan*:GpuGroupedScaled.Nan*' groups &
    sanitize $tool cuda_gemm_test 'GpuGroupedOutputs.Indices*:GpuGroupedOutputs.Numbers*' outputs &
    sanitize $tool cuda_gemm_test 'GpuGroupedScaledOutputs.OutputsOf*' scaled_outputs &
    sanitize $tool cuda_gemm_test 'GpuArranged.EveryWay*' contractions &
    sanitize $tool cuda_route_test 'GpuRoute.SpecialValues:GpuRoute.Ids*' routers &
  done
  wait
  for name in lists groups outputs scaled_outputs contractions routers; do
    for tool in memcheck racecheck; do sanitized $name $tool; done
  done
}

gemm_part() {
  note "== every essential kernel on random odd shapes, against fp64"
  gtest 280 cuda_test cuda_gemm_test "*-$grouped_tests"
  note "== launches: captured in a graph, cost on the host"
  gtest 60 launch_test cuda_launch_test '*'
  grep -E "^driver |FAILED" "$out/launch_test.log" | tee -a "$summary" || true

  note "== compute-sanitizer, one kernel per pipeline and class of types"
  for tool in memcheck racecheck; do
    for line in "m=136 n=264 k=200 dtype=bf16" "m=136 n=264 k=208 dtype=fp8" \
      "m=8 n=264 k=512 dtype=bf16" "m=67 n=45 k=33 dtype=bf16" "m=67 n=45 k=33 dtype=int8" \
      "m=67 n=45 k=33 dtype=fp32" "m=520 n=264 k=1001 dtype=bf16" \
      "m=512 n=264 k=1008 dtype=fp8 layout=crr" "m=9 n=130 k=32768 dtype=bf16"; do
      # shellcheck disable=SC2086
      words=$(timeout 60 "$sanitizer" --tool $tool "$tessera" run gemm $line --target sm90a \
        --repeat 1 2>&1 | grep -E "ERROR SUMMARY|RACECHECK SUMMARY" || echo "no summary")
      note "$tool gemm $line: $words"
    done
  done

  set -- --peers cublaslt
  bench 120 llama3_8b_bf16 gemm --shapes llama3_8b --dtype bf16 "$@"
  bench 120 square_bf16 gemm --shapes square_gpu --dtype bf16 --layout rcr "$@"
  bench 120 skinny_bf16 gemm --shapes skinny --dtype bf16 --layout rcr "$@"
  bench 120 odd_bf16 gemm --shapes odd_gpu "$@"
  bench 120 deepseek_v3_bf16 gemm --shapes deepseek_v3 "$@"
  bench 120 square_fp16 gemm --shapes square_gpu --dtype fp16 --layout rcr "$@"
  bench 120 square_fp8 gemm --shapes square_gpu --dtype fp8 --layout rcr "$@"
  bench 120 square_int8 gemm --shapes square_gpu --dtype int8 --layout rcr "$@"
  bench 120 square_tf32 gemm --shapes square_gpu --dtype tf32 --layout rcr "$@"
  bench 120 llama3_8b_int8 gemm --shapes llama3_8b --dtype int8 "$@"
  bench 120 square_fp32 gemm --shapes square_gpu --dtype fp32 --layout rcr "$@"
}

conv_part() {
  note "== every essential kernel on random problems, against fp64"
  gtest 240 conv_test cuda_conv_test '*:-GpuLargeConv.*:GpuConvSmall.*'
  note "== images of more than 2^31 elements"
  gtest 200 conv_large cuda_conv_test 'GpuLargeConv.*'
}

# sanitize TOOL PROGRAM FILTER NAME: writes a log.
sanitize() {
  timeout "$(limit 500)" "$sanitizer" --tool "$1" --launch-timeout 500 \
    --target-processes application-only "$build/tests/$2" --gtest_filter="$3" \
    >"$out/$4_$1.log" 2>&1 || true
}

# sanitized NAME TOOL: what the log says.
sanitized() {
  words=$(grep -E "ERROR SUMMARY|RACECHECK SUMMARY|^\[  (PASSED|FAILED)|kernels, " \
    "$out/$1_$2.log" | tr '\n' ' ')
  note "$2 $1: ${words:-no summary}"
}

# The program runs every kernel in one process: starting the sanitizer takes longer than a kernel.
# In 60 s, which is the usual limit, the sanitizer did not attach to it.
# The six runs share the GPU, since nothing is timed.
conv_sanitizers_part() {
  for direction in Forward BackwardData BackwardWeight; do
    for tool in memcheck racecheck; do
      sanitize $tool cuda_conv_test "GpuConvSmall.$direction" "conv_$direction" &
    done
  done
  wait
  for direction in Forward BackwardData BackwardWeight; do
    for tool in memcheck racecheck; do sanitized "conv_$direction" $tool; done
  done
}

fmha_part() {
  note "== essential kernels on samples, and every pipeline on random problems, against fp64"
  gtest 400 fmha_test cuda_fmha_test '*:-GpuFmhaSmall.*'
}

fmha_sanitizers_part() {
  for tool in memcheck racecheck; do
    sanitize $tool cuda_fmha_test 'GpuFmhaSmall.*' fmha &
  done
  wait
  for tool in memcheck racecheck; do sanitized fmha $tool; done
}

# 16 k tokens of 2048 elements, as papers on attention have them.
prefill_shapes() {
  for mask in none top_left; do
    for hdim in 64 128 256; do
      for length in 512 1024 2048 4096 8192 16384; do
        echo "fmha batch=$((16384 / length)) heads=$((2048 / hdim)) seqlen_q=$length" \
          "seqlen_k=$length hdim=$hdim dtype=$1 mask=$mask"
      done
    done
  done
}

fmha_prefill_part() {
  for dtype in bf16 fp16; do
    prefill_shapes $dtype >"$out/prefill_$dtype.txt"
    bench 200 "fmha_prefill_$dtype" fmha --shapes "$out/prefill_$dtype.txt" --peers cudnn \
      --rounds 9 --soak 0.1
  done
  bench 120 fmha_llama3_8b fmha --shapes llama3_8b --peers cudnn --rounds 9 --soak 0.1
}

fmha_decode_part() {
  for shapes in decode_8k decode_32k decode_128k; do
    bench 120 "fmha_$shapes" fmha --shapes $shapes --peers cudnn --rounds 9 --soak 0.1
  done
}

# Every second problem with one query and at least 1024 keys, of equal lengths.
fmha_drawn_part() {
  "$tessera" problems decode --op fmha --target sm90a --dtype bf16 --unseen |
    awk '/seqlen_q=1 / && !/lengths=/ && match($0, /seqlen_k=[0-9]+/) &&
         substr($0, RSTART + 9, RLENGTH - 9) + 0 >= 1024 && ++count % 2 == 0' |
    head -32 >"$out/drawn.txt"
  bench 200 fmha_drawn fmha --shapes "$out/drawn.txt" --peers cudnn --peer-seconds 0 --rounds 9 \
    --soak 0.05
}

# Layers that no model has learned from, every seventh of the list.
drawn_layers() {
  "$tessera" problems wide --op conv --target sm90a --dtype bf16 --unseen |
    awk '/^conv/ && ++count % 7 == 0' >"$1"
}

conv_bench_part() {
  direction=$1
  set -- --set "direction=$1" --dtype bf16 --peers cudnn --peer-seconds 0 --rounds 7 --soak 0.1
  case $part in
  *-others)
    for shapes in resnext101 mobilenet_v3 efficientnet video_3d wavenet; do
      bench 150 "conv_${direction}_$shapes" conv --shapes $shapes "$@"
    done
    ;;
  *)
    batch=${part##*-}
    for shapes in resnet50 unet_sd15 convnext; do
      bench 180 "conv_${direction}_${shapes}_$batch" conv --shapes $shapes --set "n=$batch" "$@"
    done
    if [ "$batch" = 32 ]; then
      drawn_layers "$out/drawn.txt"
      bench 180 "conv_${direction}_drawn" conv --shapes "$out/drawn.txt" "$@"
    fi
    ;;
  esac
}

# drawn SECONDS NAME ARGUMENTS...
drawn() {
  seconds=$1 name=$2
  shift 2
  note "== $name: bench/drawn_conv.py --seed $seed $*"
  set -- --seed "$seed" --target sm90a --peers cudnn --peer-seconds 0 --rounds 7 \
    --program "$tessera" "$@"
  timeout "$(limit "$seconds")" python3 "$here/../bench/drawn_conv.py" "$@" \
    --json "$out/$name.json" >/dev/null 2>"$out/$name.err" ||
    note "stopped: $(tail -1 "$out/$name.err")"
  python3 "$here/../bench/drawn_conv.py" --seed "$seed" --read "$out/$name.json" | tee -a "$summary"
}

conv_drawn_part() {
  seed=${SEED:-$(date +%Y%m%d)}
  drawn 270 "drawn_$1" --directions "$1"
  drawn 200 "drawn_$1_grouped" --directions "$1" --kinds grouped --count 18
  drawn 60 "drawn_$1_stem" --directions "$1" --kinds stem --count 8
}

note "tessera gpu check: $part"
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader |
  tee -a "$summary"
case $part in
gemm) gemm_part ;;
gemm-groups) gemm_groups_part ;;
gemm-sanitizers) gemm_sanitizers_part ;;
conv) conv_part ;;
conv-sanitizers) conv_sanitizers_part ;;
fmha) fmha_part ;;
fmha-sanitizers) fmha_sanitizers_part ;;
fmha-prefill) fmha_prefill_part ;;
fmha-decode) fmha_decode_part ;;
fmha-drawn) fmha_drawn_part ;;
conv-drawn-*) conv_drawn_part "${part#conv-drawn-}" ;;
conv-backward_data-*) conv_bench_part backward_data ;;
conv-backward_weight-*) conv_bench_part backward_weight ;;
conv-forward-*) conv_bench_part forward ;;
*)
  note "unknown part $part; the head of this script lists them"
  exit 2
  ;;
esac
note "done after $(elapsed) s"
