#!/usr/bin/env bash
# Makes an environment for the plug of JAX and runs its tests; more arguments go to pytest.
#   integrations/jax/run.sh FOLDER [pytest's arguments]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?name a folder for the environment}
shift
if [[ ! -x $folder/bin/python ]]; then
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/pip" install --quiet "apache-tvm-ffi>=0.1.15,<0.2" jax-tvm-ffi==0.1.3 \
    "jax>=0.12,<0.13" ml_dtypes numpy pytest
fi
# The package of this checkout, unless another one is installed there.
"$folder/bin/python" -c 'import tessera' 2>/dev/null || export PYTHONPATH=$here/../../python
exec "$folder/bin/python" -m pytest -q "$here" "$@"
