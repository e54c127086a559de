#!/bin/sh
# Runs a wheel where nothing else of ours is: a Debian of libc and Python alone, made for it, without
# a compiler and without an OpenMP library. NumPy needs libstdc++. bare.sh WHEEL PACKS [SUITE]; needs
# root and mmdebstrap.
# SUITE names an older Debian than the system's, whose glibc must suffice as well.
set -eu
wheel=$(readlink -f "$1")
packs=$(readlink -f "$2")
suite=${3:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=extract --include=libc6,libstdc++6,python3 "$suite" "$root"
version=$(chroot "$root" /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export PIP_ROOT_USER_ACTION=ignore
python3 -m pip install -q --disable-pip-version-check --target "$root/usr/share/site" \
  --only-binary :all: \
  --python-version "$version" --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
  numpy "$wheel" "$packs"
cat >"$root/check.py" <<'TEXT'
import numpy, tessera
from tessera import _openmp

rng = numpy.random.default_rng()
a, b = (rng.standard_normal(shape).astype("f") for shape in ((100, 200), (200, 300)))
assert abs(tessera.matmul(a, b) - a @ b).max() < 1e-3
assert _openmp.loaded() == ["/usr/share/site/tessera/lib/libgomp.so.1"], _openmp.loaded()
said = tessera.command("version")
targets = {target for pack in said["packs"] for target in pack["targets"]}
assert {"avx2", "avx512", "sm90a"} <= targets, said["packs"]
TEXT
mkdir -p "$root/proc"
PYTHONPATH=/usr/share/site HOME=/tmp unshare --mount --fork sh -eu -c '
  mount --bind /proc "$0/proc"
  chroot "$0" /usr/bin/python3 /check.py
  chroot "$0" /usr/bin/python3 -m tessera version >/dev/null
  chroot "$0" /usr/share/site/tessera/lib/tessera-worker 2>&1 | grep -q ^usage:
' "$root"
echo "python: the wheel ran in a bare Debian ($suite), Python $version"
