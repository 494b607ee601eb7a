#!/usr/bin/env bash
# Tests and benchmarks on a machine with a GPU, in one call under ten minutes. Needs no network.
#
#   tools/gpu_check.sh OUTDIR [BUILD]
#
# BUILD is a folder with bin/jitgemm and bin/tests, built elsewhere if need be; without it the project is built here.
# Leaves in OUTDIR summary.txt (device, versions, commit, digest, table), tests.log, sanitizer.log, one CSV file a benchmark,
# and seeds.tgz with what `jitgemm seed` says. Fails if a stage failed or ran out of time. What is committed as
# tools/results/h200 becomes tools/results/README.md by `tools/report.py record tools/results/h200`.
# JITGEMM_GPU_CHECK_STAGES="tests sanitizer seeds bench aligned cuda_l2 regret endurance" runs some of the stages only; bench and
# aligned take most of the ten minutes each, so that three calls make a whole record; cuda_l2 and regret take three or four minutes
# each, and leave what `tools/report.py published` and tools/regret.py read; the name of a CSV file stands for that benchmark alone,
# and JITGEMM_GPU_CHECK_PACE=0.7 takes seven tenths of the usual time a shape. JITGEMM_GPU_CHECK_CHOICES is a folder of an earlier
# record's CSV files: bench and aligned then tune nothing and time those choices, and two calls make the record, "bench" and
# "tests sanitizer aligned". Each shape is timed back to back and between kernels of someone else's, in the same rounds;
# JITGEMM_GPU_CHECK_ARMS="--without-early --invariant" adds arms, which take their share of a shape's time. endurance is the
# tests [long] and a soak. JITGEMM_TRITON_MANIFEST names kernels that tools/triton_peer/compile.py has made, as a peer of the
# squares; JITGEMM_COMMIT the commit, without git.
set -uo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] && [ $# -le 2 ] || { bash "$0" --help >&2; exit 2; }
mkdir -p "$1" || exit 1
out=$(cd "$1" && pwd)
build=${2:-}
stages=" ${JITGEMM_GPU_CHECK_STAGES:-tests sanitizer seeds} "
began=$SECONDS
summary=$out/summary.txt
table=$(mktemp) work=$(mktemp -d)
trap 'rm -rf "$table" "$work"' EXIT
failed=0

fail() { echo "gpu_check: error: $*" >&2; exit 1; }
# Rows of the table: stage, seconds, result.
row() { printf '%-34s %5s s  %s\n' "$1" "$2" "$3" >>"$table"; }
left() { echo $((590 - (SECONDS - began))); }
# limited SECONDS COMMAND...: 124 when the time is over, its own or that of all.
limited() {
  local limit=$1 all
  all=$(left)
  shift
  [ "$all" -lt 5 ] && return 124
  timeout --kill-after=5 "$((limit < all ? limit : all))" "$@"
}
# The verdict on an exit status.
verdict() {
  case $1 in
    0) echo "ok" ;;
    124 | 137) echo "OUT OF TIME" ;;
    *) echo "FAILED ($1)" ;;
  esac
}

choices=${JITGEMM_GPU_CHECK_CHOICES:-}
if [ -n "$choices" ]; then
  choices=$(cd "$choices" 2>/dev/null && pwd) || fail "no such folder: JITGEMM_GPU_CHECK_CHOICES=$JITGEMM_GPU_CHECK_CHOICES"
fi
command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU || fail "no GPU here; tools/test.sh runs what needs none"

if [ -z "$build" ]; then
  build=$work/build
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$out/tests.log" 2>&1 &&
    limited 300 cmake --build "$build" --parallel "$(nproc)" --target jitgemm_command tests >>"$out/tests.log" 2>&1 ||
    { tail -30 "$out/tests.log" >&2; fail "cannot build here: give a folder built elsewhere as second argument"; }
  row "build" $((SECONDS - began)) ok
fi
build=$(cd "$build" && pwd) || fail "no such folder: $build"
jitgemm=$build/bin/jitgemm tests=$build/bin/tests
[ -x "$jitgemm" ] && [ -x "$tests" ] || fail "$build has no bin/jitgemm and bin/tests"

# A build from elsewhere knows its sources and its toolkit by the paths that they had there.
cuda=${CUDA_HOME:-/usr/local/cuda}
export LD_LIBRARY_PATH=$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
built_from=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null)
if [ -n "$built_from" ] && [ ! -e "$built_from" ]; then
  mkdir -p "$(dirname "$built_from")" && ln -s "$root" "$built_from" || fail "cannot put a link to the sources at $built_from"
fi
export JITGEMM_CACHE_DIR=$work/cache PATH=$PATH:$cuda/bin
unset JITGEMM_TUNING JITGEMM_SYSTEM_CACHE_DIR
mkdir -p "$JITGEMM_CACHE_DIR"

commit=${JITGEMM_COMMIT:-$(git -C "$root" rev-parse --verify -q HEAD 2>/dev/null || echo unknown)}
[ -n "${JITGEMM_COMMIT:-}" ] || [ -z "$(git -C "$root" status --porcelain -- src templates tools include 2>/dev/null)" ] ||
  commit="$commit, and changes"
digest=$(bash "$root/tools/digest.sh")
{
  echo "date      $(date -u +%Y-%m-%dT%H:%MZ)"
  echo "commit    $commit"
  echo "digest    $digest"
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader | sed 's/^/device    /'
  echo "library   $("$jitgemm" --version)"
  echo "toolkit   $(nvcc --version 2>/dev/null | sed -n 's/.*release //p')"
  echo "system    $(. /etc/os-release && echo "$PRETTY_NAME"), $(uname -r), $(nproc) CPUs"
  "$jitgemm" devices
} >"$summary" 2>&1

run_tests() {
  local begin=$SECONDS status
  limited 330 "$tests" "[gpu]~[full]~[long]" --durations yes >>"$out/tests.log" 2>&1
  status=$?
  row "tests [gpu]" $((SECONDS - begin)) "$(verdict $status) $(grep -aE 'All tests passed|^test cases:' "$out/tests.log" | tail -1)"
  [ $status -eq 0 ] || failed=1
}

# Without and with a warm kernel cache, each in a new process.
run_first_calls() {
  local begin=$SECONDS loop status=0
  for loop in portable Hopper; do
    for _ in cold warm warm; do
      JITGEMM_CACHE_DIR=$work/first_call limited 30 "$tests" "The first call of a process with the $loop main loop" >"$work/first.log" 2>&1 || status=1
      grep -a "^first call" "$work/first.log" >>"$summary" || status=1
      cat "$work/first.log" >>"$out/tests.log"
    done
  done
  row "first calls" $((SECONDS - begin)) "$(verdict $status)"
  [ $status -eq 0 ] || failed=1
}

# A client's program, where the build has it: the CUDA runtime beside the library.
run_example() {
  local begin=$SECONDS status
  [ -x "$build/bin/example_cuda_graph" ] || return 0
  echo "== example cuda_graph" >>"$out/tests.log"
  LD_LIBRARY_PATH=$build/lib:$LD_LIBRARY_PATH limited 60 "$build/bin/example_cuda_graph" >>"$out/tests.log" 2>&1
  status=$?
  row "example cuda_graph" $((SECONDS - begin)) "$(verdict $status) $(tail -1 "$out/tests.log")"
  [ $status -eq 0 ] || failed=1
}

run_sanitizer() {
  local sanitizer tool begin status
  sanitizer=$(command -v compute-sanitizer || ls "$cuda"/compute-sanitizer/compute-sanitizer 2>/dev/null)
  : >"$out/sanitizer.log"
  for tool in memcheck racecheck; do
    begin=$SECONDS
    if [ -z "$sanitizer" ]; then
      row "compute-sanitizer $tool" 0 "NOT RUN: there is none here"
      continue
    fi
    echo "== $tool" >>"$out/sanitizer.log"
    limited 60 "$sanitizer" --tool $tool --error-exitcode 99 "$tests" "[gpu][small]" >>"$out/sanitizer.log" 2>&1
    status=$?
    if grep -qa "Device not supported" "$out/sanitizer.log"; then
      row "compute-sanitizer $tool" $((SECONDS - begin)) "NOT RUN: it refuses this device"
      continue
    fi
    row "compute-sanitizer $tool" $((SECONDS - begin)) "$(verdict $status) $(grep -aE 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/sanitizer.log" | tail -1 | sed 's/=* *//')"
    [ $status -eq 0 ] || failed=1
  done
}

# means PROTOCOL PREFIX: of the output of `bench`, "; cublas / tuned 1.234" and the like.
means() {
  sed -n "/^all, $1 /,/^\$/s,^  \([a-z_]*[a-z ]*/ [a-z]*\) *[0-9]* *\([0-9.]*\) .*,; $2\1 \2,p" | grep -v floor | tr -d '\n'
}

# bench NAME LIMIT SHAPES SECONDS PROBLEM...: OUTDIR/NAME.csv, and the ratios of all shapes into the table. Configurations are tuned
# first, with the default budget, and timed in a fresh process, which has SECONDS a shape; or they are those of an earlier
# record, which have three fifths of that, so that they fit into two calls.
bench() {
  local name=$1 limit=$2 shapes=$3 seconds begin=$SECONDS tuned status
  seconds=$(awk "BEGIN { print $4 * ${JITGEMM_GPU_CHECK_PACE:-1} }")
  shift 4
  [[ $stages == *" $group "* || $stages == *" $name "* ]] || return 0
  if [ -n "$choices" ]; then
    tuned="choices of ${choices#"$root"/}/$name.csv"
    seconds=$(awk "BEGIN { print 0.6 * $seconds }")
    set -- --tuned-as "$choices/$name.csv" --model --tuned --peers --seconds-per-shape "$seconds" "$@"
  else
    limited "$limit" "$jitgemm" tune --shapes "$shapes" "${@/--scales/--json}" >"$work/$name.log" 2>&1
    status=$?
    tuned="tuned in $((SECONDS - begin)) s"
    # What is not tuned would pass for it below.
    [ $status -eq 0 ] || { row "bench $name" $((SECONDS - begin)) "NOT RUN: tuning: $(verdict $status)"; failed=1; return 1; }
    set -- --frozen --model --tuned --peers --seconds-per-shape "$seconds" "$@"
  fi
  # shellcheck disable=SC2086  # words
  set -- "$@" ${JITGEMM_GPU_CHECK_ARMS:-} ${triton_manifest:+--triton-manifest "$triton_manifest"}
  limited "$limit" "$jitgemm" bench --shapes "$shapes" --csv "$out/$name.csv" "$@" >"$work/$name.log" 2>&1
  status=$?
  {
    echo
    echo "== bench $name ${*//"$root/"/}, $tuned"
    grep -aE '^(peer|no peers|jitgemm: )' "$work/$name.log"
    sed -n '/^all, /,$p' "$work/$name.log"
  } >>"$summary"
  row "bench $name" $((SECONDS - begin)) "$(verdict $status), $(tail -n +2 "$out/$name.csv" | cut -d, -f1-3 | sort -u | wc -l) of $(grep -c "^[0-9]" "$shapes") shapes, $tuned$(means rep "" <"$work/$name.log")$(means mix "mix " <"$work/$name.log")"
  [ $status -eq 0 ] || failed=1
}

# seed NAME LIMIT OPTIONS...: its last lines into the summary.
seed() {
  local name=$1 limit=$2 begin=$SECONDS status
  shift 2
  limited "$limit" "$jitgemm" seed "$name" "$@" --json "$work/seeds/$name.json" >"$work/seeds/$name.txt" 2>&1
  status=$?
  { echo; echo "== seed $name $*"; tail -n 90 "$work/seeds/$name.txt"; } >>"$summary"
  row "seed $name" $((SECONDS - begin)) "$(verdict $status)"
  [ $status -eq 0 ] || failed=1
}

run_seeds() {
  mkdir -p "$work/seeds"
  seed checks 20
  seed squares 80 --csv "$work/seeds/squares.csv" ${JITGEMM_TRITON_MANIFEST:+--triton-manifest "$JITGEMM_TRITON_MANIFEST"}
  seed singles 40
  seed sweep 110 --first 100 --seconds 90
  tar czf "$out/seeds.tgz" -C "$work" seeds
}

run_bench() {
  local group=bench corpora=$root/tests/corpora triton_manifest=
  bench large_f16 60 "$corpora/large.txt" 2
  bench large_bf16 60 "$corpora/large.txt" 2 --type bf16 --layout nt
  bench large_fp8_fast 60 "$corpora/large.txt" 1.5 --type e4m3 --d bf16 --layout nt --scales
  bench large_fp8_promoted 60 "$corpora/large.txt" 1.5 --type e4m3 --d bf16 --layout nt --scales --accumulation promoted
  cat "$corpora/seed_squares_31.txt" "$corpora/seed_singles.txt" >"$work/seeds.txt"
  triton_manifest=${JITGEMM_TRITON_MANIFEST:-}
  bench seeds 150 "$work/seeds.txt" 0.6
  triton_manifest=
  bench llm_decode_49 150 "$corpora/llm_decode_49.txt" 0.6 --type bf16 --layout nt
  bench fp8_fast 250 "$corpora/fp8_aligned16_100.txt" 0.6 --type e4m3 --d bf16 --layout nt --scales
  bench fp8_promoted 250 "$corpora/fp8_aligned16_100.txt" 0.6 --type e4m3 --d bf16 --layout nt --scales --accumulation promoted
  bench streamk_unaligned_100 300 "$corpora/streamk_unaligned_100.txt" 0.6
}

run_aligned() { local group=aligned && bench streamk_aligned8_300 400 "$root/tests/corpora/streamk_aligned8_300.txt" 0.6; }

# A sample of a grid that others publish their numbers of.
run_cuda_l2() { local group=cuda_l2 && bench cuda_l2 300 "$root/tests/corpora/cuda_l2_120.txt" 0.6; }

# regret_part SHAPES PROBLEM...: more lines of OUTDIR/regret.csv. The best known is the fastest of the first 48 candidates by the
# cost model: of 60 shapes none had its best beyond them, nor among 64 drawn at random.
regret_part() {
  local shapes=$1 part status
  part=$(basename "$shapes" .txt)
  shift
  limited 90 "$jitgemm" tune --shapes "$shapes" "$@" >"$work/$part.log" 2>&1 || return
  limited 250 "$jitgemm" bench --shapes "$shapes" --csv "$work/$part.csv" --frozen --model --tuned --derived --repeats 2 \
    --first 48 --finalists 8 --no-peers --protocol both --seconds-per-shape "$(awk "BEGIN { print 0.6 * ${JITGEMM_GPU_CHECK_PACE:-1} }")" "$@" \
    >>"$work/$part.log" 2>&1
  status=$?
  [ -s "$out/regret.csv" ] || head -1 "$work/$part.csv" >"$out/regret.csv"
  tail -n +2 "$work/$part.csv" >>"$out/regret.csv"
  { echo; echo "== regret $part $*"; grep -a '^jitgemm: ' "$work/$part.log"; sed -n '/^all, /,/^$/p' "$work/$part.log"; } >>"$summary"
  return $status
}

# On shapes that are in no other corpus.
run_regret() {
  local begin=$SECONDS status=0 corpora=$root/tests/corpora
  rm -f "$out/regret.csv"
  regret_part "$corpora/regret_f16_30.txt" --type f16 || status=$?
  regret_part "$corpora/regret_bf16_16.txt" --type bf16 --layout nt || status=$?
  regret_part "$corpora/regret_decode_14.txt" --type bf16 --layout nt || status=$?
  row "regret" $((SECONDS - begin)) "$(verdict $status), $(tail -n +2 "$out/regret.csv" | cut -d, -f1-3 | sort -u | wc -l) of $(grep -hv '^#' "$corpora"/regret_*.txt | wc -l) shapes"
  [ $status -eq 0 ] || failed=1
}

# What takes its time: threads that share streams, graphs and memory by the thousand, and everything drawn at random.
run_endurance() {
  local begin=$SECONDS status
  limited 300 "$tests" "[long]" --durations yes >"$out/endurance.log" 2>&1
  status=$?
  row "tests [long]" $((SECONDS - begin)) "$(verdict $status) $(grep -aE 'All tests passed|^test cases:' "$out/endurance.log" | tail -1)"
  [ $status -eq 0 ] || failed=1
  begin=$SECONDS
  limited 280 "$jitgemm" soak --minutes 2 --patterns 100 --check-every 200 >"$work/soak.log" 2>&1
  status=$?
  cat "$work/soak.log" >>"$out/endurance.log"
  { echo; echo "== endurance"; grep -aE '^8 threads|^device memory' "$out/endurance.log"; cat "$work/soak.log"; } >>"$summary"
  row "soak" $((SECONDS - begin)) "$(verdict $status) $(grep -a '^calls' "$work/soak.log")"
  [ $status -eq 0 ] || failed=1
}

[[ $stages == *" tests "* ]] && run_tests && run_first_calls && run_example
[[ $stages == *" sanitizer "* ]] && run_sanitizer
[[ $stages == *" seeds "* ]] && run_seeds
run_bench
run_aligned
run_cuda_l2
[[ $stages == *" regret "* ]] && run_regret
[[ $stages == *" endurance "* ]] && run_endurance

row "all" $((SECONDS - began)) "$([ $failed -eq 0 ] && echo ok || echo FAILED)"
{ echo; echo "== table"; cat "$table"; } >>"$summary"
cat "$table"
exit $failed
