#!/usr/bin/env bash
# Runs clang-tidy by .clang-tidy over the C++ of the tree, or says what it finds and fails.
#
#   tools/tidy.sh            all of it: ten minutes on 2 cores. Notes the commit in .ci/tidied if nothing is found
#   tools/tidy.sh --changed  what differs from the commit in .ci/tidied, a header by one file that includes it; what CI runs
#   tools/tidy.sh FILE...
#
# Needs build/release, configured. One version of clang-tidy for all, from PyPI, kept in .tidy/, which git ignores.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

version=23.1.4
program=.tidy/clang_tidy/data/bin/clang-tidy
commands=build/release/compile_commands.json
tidied=.ci/tidied  # the last commit of which all is known to be tidy, so that no commit of a series goes unchecked
fail() { echo "tidy.sh: error: $*" >&2; exit 2; }
[[ -f $commands ]] || fail "there is no $commands: run cmake --preset release first"

# Files that the build compiles, of those that are given.
compiled() {
  local file
  while read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$commands" || echo "$file"
  done
}
# For each header the first file that includes it, else itself.
units() {
  local file unit
  while read -r file; do
    unit=$file
    if [[ $file != *.cpp ]]; then
      unit=$(git grep -lE "#include \"([^\"]*/)?${file##*/}\"" -- '*.cpp' | compiled | head -n 1)
    fi
    [[ -z $unit ]] || echo "$unit"
  done
}

case ${1:-} in
  "") files=$(git ls-files '*.cpp' | compiled) ;;
  --changed)
    base=$(cat "$tidied")
    if git rev-parse -q --verify "$base^{commit}" >/dev/null; then
      files=$(git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.hpp' '*.cuh' | units | compiled | sort -u)
    else
      echo "tidy.sh: this clone does not have commit $base, so all files are checked"
      files=$(git ls-files '*.cpp' | compiled)
    fi
    ;;
  -*) fail "what is $1? See tools/tidy.sh --help" ;;
  *) files=$(printf '%s\n' "$@" | units | compiled | sort -u) ;;
esac
[[ -n $files ]] || { echo "tidy.sh: no file to check"; exit 0; }

if [[ ! -x $program || $($program --version) != *"$version"* ]]; then
  rm -rf .tidy
  python3 -m pip install -q --no-cache-dir --disable-pip-version-check --root-user-action ignore --target .tidy \
    "clang-tidy==$version" ||
    fail "pip could not get clang-tidy $version: install python3-pip, and see that PyPI is reachable"
fi
echo "tidy.sh: $(wc -l <<<"$files") files"
# The commands are of g++: clang knows other warnings and precompiled headers, and calls what the standard library does
# itself deprecated.
xargs -n 1 -P "$(nproc)" "$program" -p build/release --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-gch --extra-arg=-Wno-deprecated-declarations <<<"$files" \
  2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter' >&2)
if (($# == 0)); then
  [[ -z $(git status --porcelain) ]] || fail "nothing was found, but the tree differs from its commit, which is not noted"
  git rev-parse HEAD >"$tidied"
fi
