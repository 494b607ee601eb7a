#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: all that need no GPU, and those that do where there is one.
# Arguments go to ctest, e.g. -L cpu or -R cache.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/bootstrap.sh
cmake --preset release --log-level=NOTICE >/dev/null
cmake --build --preset release --parallel "$(nproc)"
ctest --preset release --parallel "$(nproc)" "$@"
