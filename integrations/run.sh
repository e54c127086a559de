#!/bin/sh
# Tests the plugs on the CPU: ./run.sh [FOLDER...], all without one. Makes an environment in
# build/integrations, in which pip installs the frameworks (the newest versions, and torch as
# TESSERA_TORCH says), or takes the one that TESSERA_PLUGS_ENV names. Then it runs the blocks of
# README.md there, if build/release is built.
set -eu
cd "$(dirname "$0")"
root=$(cd .. && pwd)
environment=${TESSERA_PLUGS_ENV:-$root/build/integrations}

# What a plug's tests need beside torch. A plug of its own framework adds its line.
packages_of() {
  case $1 in
    transformers) echo transformers ;;
    *) echo ;;
  esac
}

if [ ! -x "$environment/bin/python3" ]; then
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet "torch==${TESSERA_TORCH:-2.11.0}" numpy setuptools
fi
export TESSERA_LIBRARY="${TESSERA_LIBRARY:-$root/build/release/src/libtessera.so.0}"
[ $# -gt 0 ] || set -- */

# The blocks of README.md whose frameworks a Python has.
blocks() {
  [ ! -x "$root/build/release/bin/tessera" ] ||
    "$1" "$root/tools/run_blocks.py" "$root/build/release" integrations/README.md ||
    failed="$failed README.md"
}

failed=""
for folder in "$@"; do
  folder=${folder%/}
  ls "$folder"/test_*.py >/dev/null 2>&1 || continue
  if [ -e "$folder/run.sh" ]; then # it makes an environment of its own
    echo "== $folder"
    bash "$folder/run.sh" "$environment-$folder" || failed="$failed $folder"
    blocks "$environment-$folder/bin/python3"
    continue
  fi
  packages=$(packages_of "$folder")
  for package in $packages; do
    "$environment/bin/python3" -c "import $package" 2>/dev/null ||
      "$environment/bin/pip" install --quiet "$package"
  done
  for test in "$folder"/test_*.py; do
    echo "== $test"
    PYTHONPATH="$root/python:$root/integrations/$folder${PYTHONPATH:+:$PYTHONPATH}" \
      "$environment/bin/python3" "$test" || failed="$failed $test"
  done
done
blocks "$environment/bin/python3"
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
