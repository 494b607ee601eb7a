#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: all that need no GPU, and those that do where there is one.
#
#   tools/test.sh [ARGUMENT...]    for example: tools/test.sh -L cpu -R cache
#
# Arguments go to ctest.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

tools/bootstrap.sh
cmake --preset release --log-level=NOTICE >/dev/null
cmake --build --preset release --parallel "$(nproc)"
ctest --preset release --parallel "$(nproc)" "$@"
