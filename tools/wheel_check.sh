#!/usr/bin/env bash
# Tries a wheel of the Python package as on a machine that has just this compiler, or none: does it install and import,
# multiply right with NumPy on the emulator, and say what is missing where there is no compiler?
#
#   tools/wheel_check.sh [--python PYTHON] WHEEL [COMPILER...]
#
#   COMPILER  none, g++, clang++ or zig, which is ziglang's from PyPI; by default none, zig, and of the others what is there
#
# Needs PYTHON (python3 by default) with its venv module, and PyPI for NumPy; no checkout, no CUDA.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

die() { echo "wheel_check: error: $*" >&2; exit 1; }

python=python3
if [[ ${1:-} == --python ]]; then
  python=${2:?wheel_check: error: --python needs one}
  shift 2
fi
[[ -f ${1:-} ]] || die "name a wheel; --help has all"
wheel=$(realpath "$1")
shift
if ((!$#)); then
  set -- none zig
  for compiler in g++ clang++; do
    if command -v "$compiler" >/dev/null; then set -- "$@" "$compiler"; fi
  done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv" || die "$python -m venv fails; on Debian and Ubuntu: apt-get install python3-venv"
"$work/venv/bin/pip" install -q "$wheel" numpy

cat >"$work/products.py" <<'PYTHON'
import sys
import time

begin = time.perf_counter()
import jitgemm
imported = time.perf_counter() - begin
import numpy as np

compiler = sys.argv[1]
random = np.random.default_rng(1)


def product(dtype, m=96, n=80, k=128, batch=()):
    if dtype == "int8":
        a, b = (random.integers(-9, 9, (*batch, *size)).astype(dtype) for size in ((m, k), (k, n)))
    else:
        a, b = (random.standard_normal((*batch, *size)).astype(dtype) for size in ((m, k), (k, n)))
    begin = time.perf_counter()
    d = jitgemm.matmul(a, b)
    seconds = time.perf_counter() - begin
    right = np.matmul(a.astype("f8"), b.astype("f8"))
    tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13, "int8": 0}[dtype]
    worst = np.abs(np.asarray(d, "f8") - right).max() / np.abs(right).max()
    assert d.shape == right.shape and worst <= tolerance, (dtype, worst)
    return seconds


if compiler == "none":
    try:
        product("float32")
    except Exception as error:
        text = str(error)
        assert "install g++ or clang++" in text and "pip install 'jitgemm[emulator]'" in text, text
        assert "\n" not in text, text
        print(f"none: imported in {1000 * imported:.0f} ms; {type(error).__name__}: {text}")
    else:
        sys.exit("none: a product without a compiler?")
else:
    first = product("float16")
    rest = [product(dtype) for dtype in ("float32", "float64", "int8")] + [product("float32", 33, 17, 65, (3,))]
    again = product("float16")
    print(f"{compiler}: imported in {1000 * imported:.0f} ms; products are right: the first after {first:.2f} s, "
          f"{len(rest)} more kernels after {max(rest):.2f} s or less, one again {1000 * again:.1f} ms")
PYTHON

for compiler; do
  # PATH has the compiler and what it runs, and nothing else.
  rm -rf "$work/bin" "$work/cache"
  mkdir "$work/bin"
  case $compiler in
    none) ;;
    zig) "$work/venv/bin/pip" install -q ziglang ;;
    g++ | clang++)
      for tool in "$compiler" as ld; do
        path=$(command -v "$tool") || die "there is no $tool here"
        ln -s "$path" "$work/bin/$tool"
      done
      ;;
    *) die "$compiler is none of none, g++, clang++ and zig" ;;
  esac
  (cd "$work" && env -i PATH="$work/bin" HOME=/nonexistent JITGEMM_CACHE_DIR="$work/cache" PYTHONWARNINGS=ignore \
    "$work/venv/bin/python" products.py "$compiler") || die "with compiler $compiler"
  if [[ $compiler == zig ]]; then "$work/venv/bin/pip" uninstall -q -y ziglang; fi
done
echo "wheel_check: all is well with $(basename "$wheel") on $(. /etc/os-release && echo "$PRETTY_NAME"), $("$work/venv/bin/python" --version)"
