#!/usr/bin/env bash
# Installs what is missing, builds the jitgemm command, and shows one GEMM being tuned, compiled, run and checked.
#
#   tools/demo.sh [ARGUMENT...]    for example: tools/demo.sh -m 512 -n 512 -k 512 --device emulator
#
# Arguments go to `jitgemm run`; without any it also tunes where it would not by default, on the emulator.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

tools/bootstrap.sh
cmake --preset release --log-level=NOTICE >/dev/null
cmake --build --preset release --parallel "$(nproc)" --target jitgemm_command
(($#)) || set -- --tuning on
build/release/bin/jitgemm run "$@"
