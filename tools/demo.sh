#!/usr/bin/env bash
# Installs what is missing, builds the jitgemm command, and shows one GEMM being tuned, compiled, run and checked.
# Arguments go to `jitgemm run`; without any it also tunes where it would not by default, on the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/bootstrap.sh
cmake --preset release --log-level=NOTICE >/dev/null
cmake --build --preset release --parallel "$(nproc)" --target jitgemm_command
(($#)) || set -- --tuning on
build/release/bin/jitgemm run "$@"
