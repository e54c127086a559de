#!/bin/sh
# Installs a wheel into a fresh virtual environment with NumPy alone, and runs the tests of this
# folder from there: run.sh WHEEL PYTHON [BUILD]. With BUILD, a build of Tessera, the libraries and
# programs in C and C++ are built and run, too, and what takes long.
set -eu
wheel=$(readlink -f "$1")
python=$2
[ $# -lt 3 ] || build=$(readlink -f "$3")
compat=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TESSERA_CACHE_DIR="$folder/cache" PIP_DISABLE_PIP_VERSION_CHECK=1 TESSERA_COMPAT="$compat"
unset TESSERA_LIBRARY PYTHONPATH 2>/dev/null || true
export PYTHONDONTWRITEBYTECODE=1
cd "$folder"
"$python" -m venv venv
venv/bin/pip install -q "$wheel"
if [ $# -gt 2 ]; then
  # As documented; there is no ROCm, and none is needed.
  mkdir -p libraries
  (
    cd libraries
    cmake "$compat" -DCMAKE_PREFIX_PATH=/opt/rocm -DTESSERA_BUILD="$build" >/dev/null
    make -s dispatcher_gemm_lib dispatcher_conv_lib gpu_helper
    make -s python_libs
    cmake . -DBUILD_DISPATCHER_TESTS=ON >/dev/null
    make -s header_tests
    make -s gemm_04_heuristics grouped_conv_02_all_dirs
    examples/gemm_04_heuristics && examples/grouped_conv_02_all_dirs
    test -e examples/libdispatcher_gemm_lib.so && make -s tessera_link
    cmake . -DPython3_EXECUTABLE="$folder/venv/bin/python" -DGPU_TARGETS=gfx942 >/dev/null
    make -s generate_all_kernels generate_kernels_gfx90a
    ls generated_kernels/gemm/*.hpp generated_kernels/gfx90a/*.hpp >/dev/null
    cmake . -DGPU_TARGETS=sm90a >/dev/null
    make -s benchmark_gemm_streamk_fp8_rcr
    bin/benchmark_gemm_streamk_fp8_rcr --help >/dev/null
  )
  # Tables and models of the original's form; without these packages their tests are skipped.
  venv/bin/pip install -q -r "$compat/requirements-ml.txt" ||
    echo "run.sh: no pandas, pyarrow, LightGBM or ml_dtypes; tests of tables are skipped" >&2
  for program in small gemm grouped_conv fmha documents; do
    "libraries/${program}_test"
  done
  libraries/ml_heuristic_test --model "$compat/../../models/gemm_avx512_fp32"
  export TESSERA_CK_LIBS="$folder/libraries/bindings/ctypes" TESSERA_LONG=1
fi
# One small program in C++17, against the wheel's library.
library=$(venv/bin/python -c 'from tessera import _abi; print(_abi.find_library())')
"${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -I"$compat/include" -I"$compat/../../include" \
  "$compat/tests/cpp/small_test.cpp" -o small_test "$library" -ldl \
  -Wl,-rpath,"$(dirname "$library")"
./small_test
# Python loads the library that the libraries in C++ link, whose functions in C++ the wheel's hides.
[ -z "${build:-}" ] || export TESSERA_LIBRARY="$build/src/libtessera.so.0"
venv/bin/python -m unittest discover -s "$compat/tests"
