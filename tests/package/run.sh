#!/bin/sh
# Installs the build given as first argument into a fresh folder and builds clients against it.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix/installed" >/dev/null
configure() {
  cmake -S "$here" -B "$prefix/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix/installed" \
    -DCMAKE_BUILD_TYPE=Release "$2"
}
configure client -DBOTH=OFF >/dev/null
cmake --build "$prefix/client" -- --quiet
export TESSERA_CACHE_DIR="$prefix/cache"
"$prefix/client/client"
"$prefix/client/tools_client"
if configure both -DBOTH=ON >"$prefix/both.txt" 2>&1 || ! grep -q TESSERA_LIBRARY "$prefix/both.txt"
then
  echo "package: a client that links both libraries must be refused" >&2
  exit 1
fi
# Autotuning needs the worker, which the program finds from its own place, called by any name.
cd "$prefix"
PATH="$prefix/installed/bin:$PATH" tessera run gemm m=40 n=50 k=60 --autotune
echo "package: the clients built against the installed package and ran"
