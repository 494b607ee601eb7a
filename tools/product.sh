#!/usr/bin/env bash
# Runs the full product of types, layouts, alignments, epilogues, schedules and shapes on the emulator, in shards.
#
#   tools/product.sh TESTS LOG [PROCESSES]
#
# TESTS is a build's bin/tests, of a sanitizer's build, too. LOG gets a line a shard; what it has already is not run
# again, so that a run of one build may be ended and go on. PROCESSES at a time [all cores]. Fails if a shard did.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
(($# == 2 || $# == 3)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ -x $1 ]] || { echo "product.sh: error: $1 is not a program: build the target tests" >&2; exit 1; }
tests=$(realpath "$1") log=$(realpath "$2") processes=${3:-$(nproc)}
shards=16
touch "$log"

run() {
  local tests=$1 log=$2 loop=$3 shard=$4 begin=$SECONDS status=0 text
  text=$(JITGEMM_TEST_SHARD=$shard "$tests" "The product of all choices is right with the $loop main loop" 2>&1) || status=$?
  ((status == 0)) || printf '%s\n' "$text" >&2
  printf '%s shard %s: exit status %s, %s s, %s\n' "$loop" "$shard" "$status" "$((SECONDS - begin))" \
    "$(grep -a 'passed\|failed' <<<"$text" | tail -n 1)" >>"$log"
  return "$status"
}
export -f run

for ((i = 0; i < shards; ++i)); do
  for loop in portable Hopper; do
    grep -q "^$loop shard $i/$shards: exit status 0" "$log" || printf '%s\0%s\0%s\0%s\0' "$tests" "$log" "$loop" "$i/$shards"
  done
done | xargs -0 -r -n 4 -P "$processes" bash -c 'run "$@"' run
echo "product.sh: $(grep -c ': exit status 0' "$log") of $((2 * shards)) shards passed, see $log"
