#!/bin/sh
# Normalisations on a GPU beside PyTorch and a copy, with problems of the day, in at most 4 minutes.
#   bench/norms_gpu.sh FOLDER RESULTS [SEED]
# FOLDER holds libtessera.so.0, tessera-worker and the packs, as build/release/src does. python3 (or
# PYTHON) has PyTorch. RESULTS gets norms.json (all rows, and of each eighth problem every kernel)
# and norms.txt, the lines that are printed.
set -u
cd "$(dirname "$0")/.."
folder=$(cd "${1:?a folder with libtessera.so.0}" && pwd)
mkdir -p "${2:?a folder for results}"
results=$(cd "$2" && pwd)
seed=${3:-$(date +%Y%m%d)}
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/python" TESSERA_LIBRARY="$folder/libtessera.so.0"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$(mktemp -d)}"
# Kernels that no pack holds are compiled by the NVRTC that PyTorch brought.
nvrtc=$("$python" -c 'import pathlib, sys
print(next((f for p in sys.path for f in pathlib.Path(p).glob("nvidia/c*/lib/libnvrtc.so.1[23]")),
           ""))')
[ -z "$nvrtc" ] || export TESSERA_NVRTC="${TESSERA_NVRTC:-$nvrtc}"
timeout 235 "$python" bench/torch_norms.py --seed "$seed" --count 72 --every 8 --seconds 205 \
  --json "$results/norms.json" 2>&1 | tee "$results/norms.txt"
