#!/bin/sh
# Installs the build given as first argument into a fresh folder and builds a client against it.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix/installed" >/dev/null
cmake -S "$here" -B "$prefix/client" -G Ninja -DCMAKE_PREFIX_PATH="$prefix/installed" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$prefix/client" -- --quiet
TESSERA_CACHE_DIR="$prefix/cache" "$prefix/client/client"
"$prefix/installed/bin/tessera" version
echo "package: the client built against the installed package and ran"
