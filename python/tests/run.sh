#!/bin/sh
# Installs a wheel into fresh virtual environments with NumPy alone: run.sh WHEEL PYTHON... The first
# Python runs the tests and the examples from there, each further one multiplies matrices once.
# ml_dtypes is a package of types for NumPy, which the tests of bf16 need; the examples run without.
set -eu
wheel=$(readlink -f "$1")
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TESSERA_CACHE_DIR="$folder/cache" PIP_DISABLE_PIP_VERSION_CHECK=1
export TESSERA_EXAMPLE_MODEL="$root/models/gemm_avx512_fp32"
unset TESSERA_LIBRARY PYTHONPATH 2>/dev/null || true
cp -r "$root/python/tests" "$root/examples/python" "$root/bench/python_call.py" "$folder"
cd "$folder"
environment() {
  rm -rf venv
  "$1" -m venv venv
  venv/bin/pip install -q "$wheel"
}
example() {
  echo "python: $(venv/bin/python -V) runs $1"
  venv/bin/python "$1" >output.txt || {
    cat output.txt
    exit 1
  }
}
for further in "$@"; do
  [ "$further" != "$1" ] || continue
  environment "$further"
  example python/01_basic.py
done
environment "$1"
for file in python/[0-9]*.py python/conv/[0-9]*.py python/fmha/[0-9]*.py; do
  case $file in *_pytorch_*) continue ;; esac # './dev test-torch' runs these
  example "$file"
done
venv/bin/python python_call.py --check
venv/bin/pip install -q ml_dtypes
TESSERA_ROOT="$root" venv/bin/python -m unittest discover -s tests
