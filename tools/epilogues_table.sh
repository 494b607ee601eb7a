#!/usr/bin/env bash
# The epilogues of tools/examples/epilogues over sixty aligned shapes in bf16, beside the product alone, the same built in where
# there is such a thing, and cuBLASLt, on a machine with a GPU: some five minutes, and no network.
#
#   tools/epilogues_table.sh OUTDIR [BUILD]
#
# BUILD is a folder with bin/jitgemm [build/release]. By the model's choice, as an epilogue first seen has it; JITGEMM_CACHE_DIR may
# hold the kernels already, which `jitgemm warm --shapes OUTDIR/shapes.txt --type bf16 --epilogue FILE --arch sm_90a` makes without a
# GPU. Leaves a CSV file an epilogue, epilogues.md and epilogues.csv in OUTDIR. JITGEMM_EPILOGUES_TABLE_NAMES="clamp dgelu" are those
# to time; JITGEMM_EPILOGUES_TABLE_OPTIONS="--device emulator" goes to every `jitgemm bench`, JITGEMM_EPILOGUES_TABLE_SHAPES is a
# file of other shapes.
set -uo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

root=$(cd "$(dirname "$0")/.." && pwd)
(($# >= 1 && $# <= 2)) || { bash "$0" --help >&2; exit 2; }
jitgemm=$(realpath -m "${2:-$root/build/release}")/bin/jitgemm
[ -x "$jitgemm" ] || { echo "epilogues_table: error: no $jitgemm: build it, or give its build folder" >&2; exit 1; }
mkdir -p "$1" && cd "$1" || exit 1
folder=$root/tools/examples/epilogues
read -ra options <<<"${JITGEMM_EPILOGUES_TABLE_OPTIONS:-}"
read -ra names <<<"${JITGEMM_EPILOGUES_TABLE_NAMES:-$(cd "$folder" && echo *.txt)}"
declare -A built_in=([leaky_relu]="activation=leaky_relu slope=0.5" [bias_residual]="bias=along_n beta=1"
                     [bias_gelu]="bias=along_n activation=gelu_erf" [residual]="beta=1")
if [ -n "${JITGEMM_EPILOGUES_TABLE_SHAPES:-}" ]; then
  cp "$JITGEMM_EPILOGUES_TABLE_SHAPES" shapes.txt || exit 1
else
  grep -v '^#' "$root/tests/corpora/streamk_aligned8_300.txt" | awk 'NR % 5 == 1' >shapes.txt
fi
export JITGEMM_TUNING=cached LD_LIBRARY_PATH=${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

: >epilogues.log
failed=0 files=()
for name in "${names[@]}"; do
  name=${name%.txt} began=$SECONDS
  files+=("$name.csv")
  rm -f "$name.csv"
  "$jitgemm" bench --shapes shapes.txt --type bf16 --model --protocol rep --seconds-per-shape 0.12 --epilogue "$folder/$name.txt" \
    --csv "$name.csv" ${built_in[$name]+--built-in "${built_in[$name]}"} ${options[@]+"${options[@]}"} >>epilogues.log 2>&1 ||
    { failed=1; echo "epilogues_table: $name failed, see epilogues.log" >&2; }
  echo "$name: $((SECONDS - began)) s" >>epilogues.log
done
python3 "$root/tools/report.py" epilogues "${files[@]}" --short epilogues.csv >epilogues.md || failed=1
cat epilogues.md
exit $failed
