#!/usr/bin/env bash
# Fuzzes every target side by side and prints one table: executions, coverage, findings.
#
#   tests/fuzz/run.sh [--seconds 60] [--jobs N] [--binaries DIR] [--build DIR] [--out DIR] [target ...]
#
# Builds the targets with clang first, unless --binaries names a folder that has them. What is found lies in OUT/TARGET/findings,
# the table in OUT/summary.md. Fails if anything was found.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)

seconds=60 jobs=$(nproc) binaries='' build=$here/../../build/fuzz out=''
targets=()
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --binaries) binaries=$2; shift ;;
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    -*) bash "$0" --help >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done

if [[ -z $binaries ]]; then
  cmake -S "$here/../.." -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DJITGEMM_FUZZ=ON \
    -DCMAKE_CXX_COMPILER="${CXX:-clang++}" -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF >/dev/null
  cmake --build "$build" --target fuzz --parallel "$jobs"
  binaries=$build/fuzz
fi
binaries=$(realpath "$binaries")
out=$(realpath -m "${out:-$build/found}")
if ((!${#targets[@]})); then
  for binary in "$binaries"/fuzz_*; do targets+=("$(basename "$binary" | cut -c6-)"); done
fi

# Older AddressSanitizers do not find room under the address randomisation of newer kernels.
fixed_addresses=()
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi

fuzz_one() {
  local target=$1 folder=$out/$1
  mkdir -p "$folder/corpus" "$folder/findings"
  cat "$out/words" "$here/dictionaries/$target.dict" >"$folder/dictionary" 2>/dev/null || true  # not all have one
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -max_len=4096
                 -artifact_prefix="$folder/findings/" -dict="$folder/dictionary")
  # A finding ends a fuzzer: go on with what is left of the time.
  local begin=$SECONDS left
  while ((left = seconds - (SECONDS - begin), left > 0)); do
    options[0]=-max_total_time=$left
    "${fixed_addresses[@]}" "$binaries/fuzz_$target" "${options[@]}" "$folder/corpus" "$here/corpus/$target" \
      >>"$folder/log" 2>&1 && break
    sleep 1
  done
  echo $((SECONDS - begin)) >"$folder/seconds"
}

rm -rf "$out"
mkdir -p "$out"
"$binaries/words" >"$out/words"
for target in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
  fuzz_one "$target" &
done
wait

{
  echo "| target | seconds | executions | executions/s | edges covered | corpus | findings |"
  echo "|---|--:|--:|--:|--:|--:|--:|"
  for target in "${targets[@]}"; do
    folder=$out/$target
    spent=$(cat "$folder/seconds")
    executions=$(awk '/stat::number_of_executed_units/ {sum += $2} END {print sum + 0}' "$folder/log")
    edges=$(awk 'match($0, /cov: [0-9]+/) {n = substr($0, RSTART + 5, RLENGTH - 5) + 0; if (n > most) most = n}
                 END {print most + 0}' "$folder/log")
    total=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) inline.*/\1/p' "$folder/log" | head -n 1)
    corpus=$(find "$folder/corpus" -type f | wc -l)
    findings=$(find "$folder/findings" -type f | wc -l)
    echo "| $target | $spent | $executions | $((executions / (spent > 0 ? spent : 1))) | $edges of ${total:-?} | $corpus | $findings |"
  done
} | tee "$out/summary.md"
found=$(find "$out" -path '*/findings/*' -type f)
[[ -z $found ]] || { printf 'findings:\n%s\n' "$found"; exit 1; }
