#!/usr/bin/env bash
# Prints the digest of what decides the generated kernels: the templates, the generator and the activations, without
# comments, white space and where a string literal is cut in two, and without what only editors and the host read of the
# templates. A record of measurements carries the digest that it was made with.
#
#   tools/digest.sh
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

{
  cat src/jit/source_generator.cpp src/core/activations.cpp src/kernels/sm90/wgmma_macros.cpp
  find templates \( -name '*.cuh' -o -name '*.in' \) ! -name 'ide*' | LC_ALL=C sort | xargs sed -E '/^#(pragma once|include ")/d'
} | sed -E 's,(^|[[:space:]])//.*,,' | tr -d '[:space:]' | sed 's,"",,g' | sha256sum | cut -d' ' -f1
