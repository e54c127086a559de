#!/bin/sh
# PyTorch on a GPU: the tests, two real models and the paired bench, in at most 5 minutes.
#   bench/torch_gpu.sh FOLDER [RESULTS]
# FOLDER holds libtessera.so.0, tessera-worker and the packs, as build/release/src does. python3 (or
# PYTHON) has PyTorch and NumPy. RESULTS gets the bench's rows as JSON.
set -u
cd "$(dirname "$0")/.."
folder=$(cd "${1:?a folder with libtessera.so.0}" && pwd)
results=${2:-}
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/python" TESSERA_LIBRARY="$folder/libtessera.so.0"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$(mktemp -d)}" TESSERA_TEST_TORCH=1
# Kernels that no pack holds are compiled by the NVRTC that PyTorch brought.
nvrtc=$("$python" -c 'import pathlib, sys
print(next((f for p in sys.path for f in pathlib.Path(p).glob("nvidia/c*/lib/libnvrtc.so.1[23]")),
           ""))')
[ -z "$nvrtc" ] || export TESSERA_NVRTC="${TESSERA_NVRTC:-$nvrtc}"
[ -z "$results" ] || mkdir -p "$results"
status=0 start=$(date +%s)

# step SECONDS COMMAND...: no step takes the time of the others.
step() {
  limit=$1
  shift
  left=$((300 - $(date +%s) + start))
  [ "$left" -gt "$limit" ] || limit=$left
  [ "$limit" -gt 0 ] || limit=1
  echo "== $*"
  timeout "$limit" "$@" || {
    echo "torch_gpu: '$*' failed or took more than $limit s"
    status=1
  }
}

peers() {
  name=$1
  shift
  step 45 "$python" bench/torch_peers.py "$@" --device cuda \
    ${results:+--json "$results/torch_$name.json"}
}

step 100 "$python" python/tests/test_torch.py
step 60 "$python" python/tests/test_torch_attention.py
step 40 "$python" python/tests/test_torch_attention_parity.py
step 60 "$python" python/tests/test_torch_warm.py
step 60 "$python" python/tests/test_torch_warm_ways.py
step 20 "$python" bench/torch_calls.py --device cuda
step 45 "$python" examples/python/torch/bert.py --device cuda
step 20 "$python" examples/python/torch/bert.py --device cuda --graph
step 45 "$python" examples/python/torch/llama_block.py --device cuda --layers 4
step 20 "$python" examples/python/torch/llama_block.py --device cuda --layers 4 --graph
step 45 "$python" examples/python/torch/llama_generate.py --device cuda --dtype bf16 \
  --width 4096 --heads 32 --kv-heads 8 --inner 14336
peers bert bench/shapes/bert_base.txt --dtype bf16
peers llama bench/shapes/llama3_8b.txt --op gemm --dtype bf16
peers attention bench/shapes/llama3_8b.txt --op fmha --calls 5 --rounds 7
step 45 "$python" bench/torch_gradients.py bench/shapes/gradients.txt --device cuda --dtype bf16 \
  --backend cudnn --graph
if "$python" -c 'import cudnn' 2>/dev/null; then
  step 60 "$python" bench/attention_fp8.py --seed "$(date +%Y%m%d)" --count 12
fi
norms=$(mktemp)
cat >"$norms" <<'TEXT'
norm kind=rmsnorm rows=128 columns=4096 in=bf16 out=bf16 weight=bf16 scale=1
norm kind=rmsnorm rows=4096 columns=4096 in=bf16 out=bf16 weight=bf16 scale=1
norm kind=layernorm rows=4096 columns=768 in=bf16 out=bf16 weight=bf16 scale=1 shift=1
norm kind=softmax rows=12288 columns=1024 in=bf16 out=bf16
TEXT
peers norms "$norms"
rm -f "$norms"
echo "torch_gpu: $(($(date +%s) - start)) s, status $status"
exit $status
