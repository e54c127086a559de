#!/bin/sh
# Long attacks that tests have no time for, about 10 minutes on two cores:
#   tools/attack/attack.sh BUILD [KILLS [PROBLEMS]]
# BUILD is a built folder such as build/release. Everything happens in a folder of its own in /tmp,
# which is removed when nothing failed. Exit status 1 when something failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
kills=${2:-100}
problems=${3:-1000000}
tessera=$build/bin/tessera
work=$(mktemp -d /tmp/tessera-attack-XXXXXX)
failures=0

check() { # condition's exit status, what it was
  if [ "$1" -eq 0 ]; then echo "passed: $2"; else
    echo "FAILED: $2"
    failures=$((failures + 1))
  fi
}

new_cache() {
  rm -rf "$work/cache"
  mkdir -m 700 "$work/cache"
  export TESSERA_CACHE_DIR="$work/cache"
}

# Kernels that no pack holds, so that each run compiles.
run_one() { "$tessera" run gemm "m=$1" n=17 k=29 --verify --threads 1 --force \
  "gemm_fp32_rcr_packab_${2:-120}x768x256_0x0x1_4x12x1_generic" --target generic; }

kill_at_random() {
  new_cache
  i=0
  while [ $i -lt "$kills" ]; do
    run_one 33 >/dev/null 2>&1 &
    process=$!
    sleep "0.$(awk -v s="$i$$" 'BEGIN { srand(s); printf "%03d", rand() * 600 }')"
    kill -9 $process 2>/dev/null
    wait $process 2>/dev/null
    i=$((i + 1))
  done
  "$tessera" cache verify >"$work/verify.txt" 2>&1
  check $? "the cache is sound after $kills kill -9"
  run_one 33 >"$work/after.txt" 2>&1
  check $? "a run after them verifies"
}

race_on() { # rules of faulty_disk.cc
  new_cache
  rm -f "$work"/race.*
  for process in 1 2 3 4 5 6 7 8; do
    (
      FAULTY_ROOT="$work/cache" FAULTY="$1" LD_PRELOAD="$work/faulty_disk.so" \
        run_one $((30 + process % 3)) >"$work/race.$process" 2>&1
      echo "status $?" >>"$work/race.$process"
    ) &
  done
  wait
  good=$(cat "$work"/race.* | grep -c '^status 0$')
  [ "$good" -eq 8 ]
  check $? "eight processes race where '$1' fails: $good of 8 have the right result"
}

c++ -std=c++20 -O1 -shared -fPIC "$here/faulty_disk.cc" -o "$work/faulty_disk.so" -ldl || exit 1
kill_at_random
for rule in none flock=37 flock=95,fsync=22 rename=39 fsync=5 memfd=38; do race_on "$rule"; done

new_cache
cmake --install "$build" --prefix "$work/installed" >/dev/null &&
  c++ -std=c++20 -O1 -I"$work/installed/include" "$here/many_problems.cc" -o "$work/many" \
    -L"$build/src" -Wl,-rpath,"$build/src" -ltessera -pthread &&
  "$work/many" "$problems"
check $? "one more problem costs at most 1,100 bytes, and nothing else is lost"

if python3 -c 'import numpy' 2>/dev/null; then
  new_cache
  TESSERA_LIBRARY="$build/src/libtessera.so.0" PYTHONPATH="$here/../../python" \
    python3 "$here/hostile_arguments.py" >"$work/hostile.txt" 2>&1
  check $? "the Python package refuses wrong arguments by sentences"
else
  echo "left out: python3 has no NumPy, so that the Python package is not attacked"
fi

if [ $failures -eq 0 ]; then rm -rf "$work"; else
  echo "what they said is in $work"
  exit 1
fi
