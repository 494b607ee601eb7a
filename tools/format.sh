#!/usr/bin/env bash
# Formats the C and C++ of the tree by .clang-format, or says what differs.
#
#   tools/format.sh            writes
#   tools/format.sh --check    only says, and fails; what CI runs
#
# One version of clang-format for all, from PyPI, kept in .format/, which git ignores.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

version=19.1.7
program=.format/clang_format/data/bin/clang-format
case ${1:-} in
  "") mode=(-i) ;;
  --check) mode=(--dry-run -Werror --ferror-limit=1) ;;
  *) echo "format.sh: error: what is $1? See tools/format.sh --help" >&2; exit 2 ;;
esac

if [[ ! -x $program || $($program --version) != *" $version"* ]]; then
  rm -rf .format
  python3 -m pip install -q --no-cache-dir --disable-pip-version-check --root-user-action ignore --target .format \
    "clang-format==$version" ||
    { echo "format.sh: error: pip could not get clang-format $version: install python3-pip, and see that PyPI is reachable" >&2; exit 1; }
fi
git ls-files -z '*.cpp' '*.hpp' '*.cuh' '*.h' '*.c' | xargs -0 -n 40 -P 2 $program "${mode[@]}"
