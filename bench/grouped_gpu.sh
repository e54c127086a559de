#!/bin/sh
# GEMM on groups of unequal sizes on a GPU beside PyTorch and dense products, in at most 8 minutes.
#   bench/grouped_gpu.sh FOLDER RESULTS [SEED]
# FOLDER holds libtessera.so.0 and tessera-worker, as build/release/src does. python3 (or PYTHON) has
# PyTorch. RESULTS gets grouped.json and grouped.txt, the lines that are printed.
set -u
cd "$(dirname "$0")/.."
folder=$(cd "${1:?a folder with libtessera.so.0}" && pwd)
mkdir -p "${2:?a folder for results}"
results=$(cd "$2" && pwd)
seed=${3:-$(date +%Y%m%d)}
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/python" TESSERA_LIBRARY="$folder/libtessera.so.0"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$(mktemp -d)}"
# Kernels are compiled by the NVRTC that PyTorch brought.
nvrtc=$("$python" -c 'import pathlib, sys
print(next((f for p in sys.path for f in pathlib.Path(p).glob("nvidia/c*/lib/libnvrtc.so.1[23]")),
           ""))')
[ -z "$nvrtc" ] || export TESSERA_NVRTC="${TESSERA_NVRTC:-$nvrtc}"
timeout 480 "$python" bench/grouped_gpu.py --seed "$seed" --seconds "${SECONDS_MOST:-300}" \
  --json "$results/grouped.json" 2>&1 | tee "$results/grouped.txt"
