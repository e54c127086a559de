#!/bin/sh
# Tests the plugs on the CPU: ./run.sh [FOLDER...], all without one. Makes an environment in
# build/integrations with what requirements.txt names and with PyTorch, which comes from build/python
# where './dev setup --torch' has put it there, or takes the environment that TESSERA_PLUGS_ENV
# names. Then it runs the blocks of README.md there, if build/release is built. A package that
# cannot be installed, and a test that fails, is a failure of this script.
set -eu
cd "$(dirname "$0")"
root=$(cd .. && pwd)
environment=${TESSERA_PLUGS_ENV:-$root/build/integrations}
wheels=$root/build/python

# The packages of build/python are seen from the environment, too, behind its own. A mark says
# whether all was installed, and which.
install() {
  cmp -s requirements.txt "$environment/installed.txt" && return 0
  echo "run.sh: installing the frameworks into $environment"
  rm -rf "$environment"
  python3 -m venv "$environment"
  set -- "$environment/bin/pip" install -qq --disable-pip-version-check --no-compile
  "$@" --no-deps -r requirements.txt
  if "$wheels/bin/python3" -c 'import numpy, torch' 2>/dev/null; then
    "$wheels/bin/python3" -c 'import site; print(site.getsitepackages()[0])' \
      >"$(echo "$environment"/lib/python3*/site-packages)/build_python.pth"
  else
    "$@" "torch==${TESSERA_TORCH:-2.11.0}" numpy
  fi
  cp requirements.txt "$environment/installed.txt"
}

# Tests of jax/ and onnxruntime/ are functions for pytest; the others are programs.
test_folder() {
  export PYTHONPATH="$root/python:$root/integrations/$1"
  if [ -n "$(grep -l '^import pytest' "$1"/test_*.py)" ]; then
    "$environment/bin/python3" -m pytest -q -rs -p no:cacheprovider "$1" || return 1
    return 0
  fi
  for test in "$1"/test_*.py; do
    "$environment/bin/python3" "$test" || return 1
  done
}

[ -n "${TESSERA_PLUGS_ENV:-}" ] || install
export TESSERA_LIBRARY="${TESSERA_LIBRARY:-$root/build/release/src/libtessera.so.0}"
export TESSERA_CACHE_DIR="${TESSERA_CACHE_DIR:-$root/build/release/kernel-cache}"
export TESSERA_PLUG_DIR="${TESSERA_PLUG_DIR:-$environment/plugs}"
# Frameworks have threads of their own, beside which waiting teams of OpenMP would keep the cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
[ $# -gt 0 ] || set -- inductor jax onnxruntime transformers vllm

# The blocks of README.md whose frameworks the environment has.
blocks() {
  "$environment/bin/python3" "$root/tools/run_blocks.py" "$root/build/release" integrations/README.md ||
    failed="$failed README.md"
}

failed=""
for folder in "$@"; do
  folder=${folder%/}
  echo "== $folder"
  begin=$(date +%s)
  test_folder "$folder" || failed="$failed $folder"
  echo "== $folder: $(($(date +%s) - begin)) s"
done
[ ! -x "$root/build/release/bin/tessera" ] || blocks
[ -z "$failed" ] || { echo "run.sh: these failed:$failed" >&2; exit 1; }
echo "run.sh: every test of the plugs passed"
