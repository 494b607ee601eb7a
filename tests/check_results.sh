#!/usr/bin/env bash
# The GPU record covers the kernels as they are: its digest is theirs, or a file `waiver` beside it names their digest and
# what is not covered.
root=$(cd "$(dirname "$0")/.." && pwd)
digest=$("$root/tools/digest.sh") || exit 1
record=$root/tools/results/h200
grep -q "^digest *$digest$" "$record/summary.txt" && exit 0
grep "$digest" "$record/waiver" 2>/dev/null && exit 0
echo "tools/results/h200/summary.txt was measured with other kernels: run tools/gpu_check.sh on a GPU and commit what it leaves," >&2
echo "or write into tools/results/h200/waiver: $digest and what the record does not cover" >&2
exit 1
