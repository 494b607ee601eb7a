#!/usr/bin/env bash
# Groups on a GPU: their tests, and beside peers what decodes, gradients of weights, a layer of transformers, replays of one graph,
# and what batch invariance costs. Under ten minutes, and no network.
#
#   tools/groups_check.sh OUTDIR [BUILD]
#   tools/groups_check.sh --warm CACHE [BUILD]
#
# BUILD is a folder with bin/jitgemm and bin/tests [build/release]; python3 has the package, torch, Triton and transformers.
# --warm needs no GPU: it compiles for JITGEMM_CACHE_DIR=CACHE what tuning looks at, some 600 kernels, which on a machine with few cores
# take longer than all else. Leaves a CSV file and a log of each part in OUTDIR. Fails if a part failed or ran out of time.
# JITGEMM_GROUPS_CHECK_PARTS="tests gradients" runs some parts only; JITGEMM_GROUPS_CHECK_ARMS is a file of further arms for
# tools/python/examples/peers_gradients.py.
set -uo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }

root=$(cd "$(dirname "$0")/.." && pwd)
examples=$root/tools/python/examples
die() { echo "groups_check: error: $*" >&2; exit 1; }
# The tuples of numbers in a script's dictionary, but those of its smallest case: a line each.
constant() {
  python3 - "$@" <<'PYTHON'
import ast, sys
for node in ast.parse(open(sys.argv[2]).read()).body:
    if isinstance(node, ast.Assign) and node.targets[0].id == sys.argv[1]:
        for name, value in ast.literal_eval(node.value).items():
            for one in (value if isinstance(value, list) else [value]) if name != "tiny" else []:
                print(*one)
PYTHON
}

if [[ ${1:-} == --warm ]]; then
  (($# >= 2 && $# <= 3)) || { bash "$0" --help >&2; exit 2; }
  cache=$2 jitgemm=${3:-$root/build/release}/bin/jitgemm
  [ -x "$jitgemm" ] || die "no $jitgemm: build it, or give its build folder"
  warm() {  # m n k, options
    "$jitgemm" warm --arch sm_90a --cache-dir "$cache" --candidates 24 -m "$1" -n "$2" -k "$3" "${@:4}" >/dev/null || exit 1
  }
  bf16=(--type bf16 --layout nt)
  blocks=(--type e4m3 --layout nt --d bf16 --accumulation promoted --scaling-a block_1x128 --scaling-b block_128x128)
  # experts, of them for a token, hidden, intermediate
  while read -r experts top_k hidden inner; do
    for tokens in 1 8 16 64 256 512 4096; do
      rows=$((tokens * top_k)) && expected=$(((rows + experts - 1) / experts))
      for sides in "$((2 * inner)) $hidden" "$hidden $inner"; do
        for kind in bf16 blocks; do
          declare -n options=$kind
          # shellcheck disable=SC2086
          warm $rows $sides "${options[@]}" --groups "$experts" --expected-m "$expected"
        done
      done
    done
  done < <(constant MODELS "$examples/peers_groups.py")
  # groups, M, N, k of each
  while read -r groups m n k; do
    for kind in "--type bf16 --layout tn" "--type bf16 --layout tn --d f32 --beta 1" "--type e4m3 --layout nt"; do
      # shellcheck disable=SC2086
      warm "$m" "$n" $((groups * k)) $kind --groups "$groups" --grouping along_k
    done
  done < <(constant CASES "$examples/peers_gradients.py")
  exit 0
fi

(($# >= 1 && $# <= 2)) || { bash "$0" --help >&2; exit 2; }
tests=$(realpath -m "${2:-$root/build/release}")/bin/tests
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 1
command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU || die "no GPU here; tools/test.sh runs what needs none"
parts=" ${JITGEMM_GROUPS_CHECK_PARTS:-tests gradients decode layer replays} "
failed=0
# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 began=$SECONDS status=0
  shift 2
  [[ $parts == *" $name "* ]] || return 0
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1 || { status=$?; failed=1; }
  echo "$name: $((SECONDS - began)) s, exit status $status"
  tail -n 6 "$out/$name.log"
}
of_groups() {  # each test case in a process of its own, as most of their time is the emulator's
  local name pids=() log=$out/tests failed=0
  mkdir -p "$log"
  while read -r name; do
    JITGEMM_CACHE_DIR=$log/cache.${#pids[@]} "$tests" "${name//,/\\,}" >"$log/${#pids[@]}.log" 2>&1 &
    pids+=($!)
  done < <("$tests" --list-test-names-only "[groups][gpu]")
  for i in "${!pids[@]}"; do
    wait "${pids[i]}" || failed=1
    tail -n 2 "$log/$i.log"
    rm -rf "$log/cache.$i"
  done
  return $failed
}
export -f of_groups
export tests out PYTHONUNBUFFERED=1
part tests 240 bash -c of_groups
part gradients 120 python3 "$examples/peers_gradients.py" --csv "$out/along_k.csv" \
  ${JITGEMM_GROUPS_CHECK_ARMS:+--arms "$JITGEMM_GROUPS_CHECK_ARMS"}
part decode 150 python3 "$examples/peers_groups.py" --csv "$out/decode_models.csv"
part layer 60 python3 "$examples/moe_layer.py" --no-compile --csv "$out/moe_layer.csv"
part replays 150 python3 "$examples/replayed_groups.py" --csv "$out/replays.csv"
exit $failed
