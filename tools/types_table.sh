#!/usr/bin/env bash
# Every type, the four layouts and the epilogues against cuBLAS and the best cuBLASLt candidate, 20 shapes each, on a machine
# with a GPU: some ten minutes, and no network.
#
#   tools/types_table.sh OUTDIR [BUILD]
#
# BUILD is a folder with bin/jitgemm [build]. Leaves a CSV file a class, types_table.md and types_table.log in OUTDIR, and
# prints the table. Fails if a class failed; the others are in the table all the same.
# JITGEMM_TYPES_TABLE_CLASSES="f64 f16_nn" are the classes to time; the table has those that a call before left in OUTDIR, too.
# JITGEMM_TYPES_TABLE_OPTIONS="--device emulator" goes to every `jitgemm bench`, JITGEMM_TYPES_TABLE_SHAPES is a file of
# shapes other than tests/corpora/types_20.txt.
set -uo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] && [ $# -le 2 ] || { bash "$0" --help >&2; exit 2; }
jitgemm=${2:-$root/build}/bin/jitgemm
[ -x "$jitgemm" ] || { echo "types_table: error: no $jitgemm: build it, or give its build folder" >&2; exit 1; }
mkdir -p "$1" && cd "$1" || exit 1
case $jitgemm in /*) ;; *) jitgemm=$OLDPWD/$jitgemm ;; esac
shapes=${JITGEMM_TYPES_TABLE_SHAPES:-$root/tests/corpora/types_20.txt}
classes=${JITGEMM_TYPES_TABLE_CLASSES:-}
read -ra options <<<"${JITGEMM_TYPES_TABLE_OPTIONS:-}"

export LD_LIBRARY_PATH=${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset JITGEMM_TUNING JITGEMM_SYSTEM_CACHE_DIR
JITGEMM_CACHE_DIR=$(mktemp -d) && export JITGEMM_CACHE_DIR
trap 'rm -rf "$JITGEMM_CACHE_DIR"' EXIT

[ -n "$classes" ] || : >types_table.log
failed=0 files=()
# class NAME OPTIONS...
class() {
  local name=$1 began=$SECONDS
  shift
  if [[ -n $classes && " $classes " != *" $name "* ]]; then
    [ -e "$name.csv" ] && files+=("$name.csv")
    return 0
  fi
  files+=("$name.csv")
  echo "== $name: $*" >>types_table.log
  rm -f "$name.csv"
  "$jitgemm" bench --shapes "$shapes" --csv "$name.csv" --tuned --protocol rep --seconds-per-shape 0.6 --tune-seconds 0.2 "$@" \
    ${options[@]+"${options[@]}"} >>types_table.log 2>&1 || { failed=1; echo "types_table: $name failed, see types_table.log" >&2; }
  echo "$name: $((SECONDS - began)) s" >>types_table.log
}

class e4m3 --type e4m3 --layout nt
class e5m2 --type e5m2 --layout nt
class e5m2_e4m3 --type e5m2 --b e4m3 --layout nt
class s8 --type s8 --layout nt
class tf32_nt --type tf32 --layout nt
class tf32_nn --type tf32
class f32 --type f32
class f64 --type f64
class f16_nn
class f16_nt --layout nt
class f16_tn --layout tn
class f16_tt --layout tt
class bf16_beta --type bf16 --beta 1
class bf16_bias_gelu --type bf16 --layout nt --bias --activation gelu_tanh
class bf16_batch_4 --type bf16 --batch 4

echo "all: $SECONDS s" >>types_table.log
python3 "$root/tools/report.py" types "${files[@]}" >types_table.md || failed=1
cat types_table.md
exit $failed
