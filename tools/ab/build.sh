#!/usr/bin/env bash
# Builds `ab`, which times another commit's library against this tree's in one process. Needs no GPU.
#
#   tools/ab/build.sh COMMIT OUTDIR
#
# Leaves in OUTDIR ab, libold.so and libnew.so, stripped, which need no more than libstdc++, the CUDA driver and NVRTC where
# they run. There, for example:
#
#   OUTDIR/ab tests/corpora/streamk_aligned8_300.txt
#   OUTDIR/ab --type e4m3 --d bf16 --layout nt --host-rounds 0 --csv fp8.csv tests/corpora/fp8_aligned16_100.txt
#
# CMAKE_FLAGS are for both libraries' builds, which are kept in JITGEMM_AB_BUILD [OUTDIR/build] for another time. This tree's
# may be one that is there already: JITGEMM_AB_NEW=build/release.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { bash "$0" --help >&2; exit 2; }
commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") || { echo "build.sh: error: no such commit: $1" >&2; exit 1; }
mkdir -p "$2"
out=$(cd "$2" && pwd)
work=${JITGEMM_AB_BUILD:-$out/build}
mkdir -p "$work/old"

# The tree of the other commit, without git's books.
rm -rf "$work/old/tree"
mkdir "$work/old/tree"
git -C "$root" archive "$commit" | tar x -C "$work/old/tree"

cxx=${CXX:-c++}
# library NAME TREE BUILD: lib/libjitgemm.a of the tree behind tools/ab/library.hpp, all other names hidden.
library() {
  local name=$1 tree=$2 build=$3
  [ -e "$build/CMakeCache.txt" ] ||
    cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DJITGEMM_TESTS=OFF -DJITGEMM_TOOLS=OFF ${CMAKE_FLAGS:-} >"$work/$name.log"
  cmake --build "$build" --target jitgemm_static >>"$work/$name.log" || { tail -30 "$work/$name.log" >&2; exit 1; }
  echo "{ global: jitgemm_ab_$name; local: *; };" >"$work/$name.map"
  "$cxx" -std=c++20 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -DAB_NAME=jitgemm_ab_"$name" -I"$tree/include" -shared \
    -Wl,-soname,lib"$name".so,--exclude-libs,ALL,-Bsymbolic,--version-script="$work/$name.map" -o "$out/lib$name.so" \
    "$root/tools/ab/library.cpp" "$build/lib/libjitgemm.a" $(boost_context "$build") -ldl -lpthread
  strip --strip-unneeded "$out/lib$name.so"
}
# The Boost.Context that the build found.
boost_context() {
  local library dir
  library=$(sed -n 's/^JITGEMM_BOOST_CONTEXT:[A-Z]*=//p' "$1/CMakeCache.txt")
  dir=$(sed -n 's/^boost_context_DIR:[A-Z]*=//p' "$1/CMakeCache.txt")  # of commits that asked Boost's own package
  if [ -n "$library" ]; then echo "$library"; else ls "$dir"/../../libboost_context.a 2>/dev/null || echo -lboost_context; fi
}

new_build=${JITGEMM_AB_NEW:-$work/new}
library old "$work/old/tree" "$work/old/build"
library new "$root" "$new_build"
cuda=$(sed -n 's/^JITGEMM_CUDA_INCLUDE_DIR:[A-Z]*=//p' "$new_build/CMakeCache.txt")
"$cxx" -std=c++20 -O2 -Wall -Wextra -Werror -isystem "$cuda" -o "$out/ab" "$root"/tools/ab/{ab,calls,device,kernels,options,report,shapes}.cpp \
  -L"$out" -lold -lnew -Wl,-rpath,'$ORIGIN' -ldl -lpthread
strip "$out/ab"
du -ch "$out/ab" "$out/libold.so" "$out/libnew.so"
