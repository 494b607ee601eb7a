#!/usr/bin/env bash
# What choices from a bounded set of kernels cost against tuned ones, on a GPU, in some three minutes.
#
#   tools/bounded_set.sh OUTDIR [STEP [RECORD]]
#
# The sets are the 24 and 48 kernels of `jitgemm warm`; the tuned choices those of the CSV files in RECORD
# [tools/results/h200 and, for squares, its beyond/]. Every STEP-th aligned shape [4] and all of decoding and the squares there.
# mN: what the model chooses among N kernels, tN: what tuning among those has measured. JITGEMM names the command
# [build/release/bin/jitgemm]. Leaves a CSV file and logs a corpus in OUTDIR, and prints geometric mean and 95th percentile,
# and how many kernels were compiled beyond the set.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n "2,/^[^#]/s/^# \{0,1\}//p" "$0"; exit 0; }
(($# >= 1 && $# <= 3)) || { bash "$0" --help >&2; exit 2; }
repo=$(cd "$(dirname "$0")/.." && pwd) step=${2:-4}
mkdir -p "$1" && out=$(cd "$1" && pwd)
j=${JITGEMM:-$repo/build/release/bin/jitgemm} work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export JITGEMM_CACHE_DIR=$work/main
unset JITGEMM_TUNING JITGEMM_SYSTEM_CACHE_DIR
record=$(cd "${3:-$repo/tools/results/h200}" && pwd)
types() { [ "$1" = decode ] && echo --type bf16 --layout nt || true; }
declare -A csv=([aligned]=$record/streamk_aligned8_300.csv [decode]=$record/llm_decode_49.csv [squares]=$record/seed_squares_31.csv)
[ -e "${csv[squares]}" ] || csv[squares]=$record/beyond/seed_squares_31.csv
every() { [ "$1" = aligned ] && echo "$step" || echo 1; }
corpora=()
for c in aligned decode squares; do
  [ -e "${csv[$c]}" ] || continue
  corpora+=("$c")
  sed 1d "${csv[$c]}" | cut -d, -f1-3 | uniq | tr , ' ' | awk -v "step=$(every $c)" 'NR % step == 1 || step == 1' >"$work/$c.txt"
done
kernels() { find "$1" -name '*.kernel' | wc -l; }
choices=()
for n in 24 48; do
  m=$work/m$n t=$work/t$n
  for c in aligned decode; do "$j" warm --arch sm_90a --kernels $n $(types $c) --cache-dir "$m" >/dev/null; done
  cp -rp "$m" "$t"
  before=$(kernels "$t")
  for c in "${corpora[@]}"; do
    "$j" tune --shapes "$work/$c.txt" $(types $c) --at-hand-within 1000 --tuning-budget 0.25 --cache-dir "$t" >"$out/tune$n.$c.log"
  done
  echo "$n kernels: $(($(kernels "$t") - before)) compiles beyond the warm $before; ${SECONDS} s"
  choices+=(--choice "m$n=$m" --choice "t$n=$t")
done
for c in "${corpora[@]}"; do
  "$j" bench --shapes "$work/$c.txt" $(types $c) --tuned --tuned-as "${csv[$c]}" --no-peers --protocol rep \
    --at-hand 1000 "${choices[@]}" --seconds-per-shape 0.2 --csv "$out/$c.csv" >"$out/$c.log"
  python3 -c 'import csv,math,sys; rows=[(float(r["tuned_us"]),{o.split()[0]:float(o.split()[1]) for o in r["others"].split("; ")}) for r in csv.DictReader(open(sys.argv[1])) if r["check"]=="ok"]
for a in ("m24","t24","m48","t48"):
  x=sorted(math.log(o[a]/t) for t,o in rows); print("%-8s %s  geomean %.3f  p95 %.3f  of %d"%(sys.argv[2],a,math.exp(sum(x)/len(x)),math.exp(x[math.ceil(.95*len(x))-1]),len(x)))' "$out/$c.csv" $c
done
echo "$SECONDS s in all"
