#!/usr/bin/env bash
# Installs what a build needs and this machine lacks, on Debian 12 and Ubuntu 24.04. Running it again changes nothing.
#
#   tools/bootstrap.sh
#
#   distribution packages: with apt-get, as root or through sudo
#   CUDA's headers and NVRTC, where there is no toolkit: from PyPI wheels into .cuda/, which git ignores
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

say() { echo "bootstrap: $*"; }
die() { echo "bootstrap: error: $*" >&2; exit 1; }

packages=(g++ cmake ninja-build libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
          libboost-context-dev catch2 python3 ca-certificates)

has_toolkit() {
  local root
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    if [[ -n $root && -f $root/include/cuda.h && -f $root/include/nvrtc.h ]]; then
      cuda=$root
      return 0
    fi
  done
  return 1
}
wheels=.cuda/nvidia/cu13
has_wheels() { [[ -f $wheels/include/cuda.h && -f $wheels/include/nvrtc.h && -f $wheels/lib/libnvrtc.so.13 ]]; }

if ! has_toolkit && ! has_wheels; then packages+=(python3-pip); fi

command -v dpkg-query >/dev/null || die "this script knows Debian 12 and Ubuntu 24.04; install the likes of: ${packages[*]}"
missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done

if ((${#missing[@]})); then
  sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "neither root nor sudo; as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  "${sudo[@]}" apt-get update -q >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; die "apt-get update failed: is there a network?"; }
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
    { tail -n 15 "$log" >&2; die "apt-get install failed, see above"; }
else
  say "all packages are there"
fi

if has_toolkit; then
  say "CUDA headers from $cuda"
elif has_wheels; then
  say "CUDA headers and NVRTC from .cuda"
else
  say "no CUDA toolkit: getting its headers and NVRTC from PyPI into .cuda (a download of 90 MB)"
  rm -rf .cuda
  python3 -m pip install -q --no-deps --no-cache-dir --disable-pip-version-check --root-user-action ignore --target .cuda.part \
    'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' ||
    { rm -rf .cuda.part; die "pip could not get them: is PyPI reachable? Or install a CUDA toolkit and set CUDA_HOME"; }
  rm -f .cuda.part/nvidia/cu13/lib/*.alt.so*  # a second build of the same compiler
  mv .cuda.part .cuda
  has_wheels || die "the wheels lack a file; remove .cuda and set CUDA_HOME to a toolkit of CUDA 12.9 or newer"
fi
