#!/usr/bin/env bash
# Tries the README's two commands in a fresh clone in a bare Debian 12, without GPU, and times them.
#
#   tools/chroot_check.sh [--toolkit DIR] [--wheel WHEEL [--ubuntu]] [--keep] [folder]
#
# --toolkit mounts a CUDA toolkit at /usr/local/cuda inside; without it NVRTC comes from PyPI.
# --wheel   tries a wheel of the Python package instead (tools/wheel_check.sh): with Python alone, then with compilers
# --ubuntu  in a bare Ubuntu 24.04, from its archive; without its keys, which Debian has not, what comes is not verified
# Needs root and debootstrap.
# The host's apt and pip settings and certificates are copied in; nothing else of the host is seen there.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

toolkit='' wheel='' ubuntu='' keep='' folder=''
while (($#)); do
  case $1 in
    --toolkit) toolkit=$(realpath "$2"); shift ;;
    --wheel) wheel=$(realpath "$2"); shift ;;
    --ubuntu) ubuntu=1 ;;
    --keep) keep=1 ;;
    *) folder=$1 ;;
  esac
  shift
done
((EUID == 0)) || { echo "chroot_check: run it as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "chroot_check: apt-get install debootstrap first" >&2; exit 1; }
folder=${folder:-$(mktemp -d /var/tmp/jitgemm-chroot.XXXXXX)}

mounts=()
cleanup() {
  local i
  for ((i = ${#mounts[@]} - 1; i >= 0; --i)); do umount "${mounts[i]}"; done
  [[ -n $keep ]] || rm -rf --one-file-system "$folder"
}
trap cleanup EXIT
mount_at() {  # source, target, options
  mkdir -p "$2"
  mount "${@:3}" "$1" "$2"
  mounts+=("$2")
}

if [[ -n $ubuntu ]]; then
  [[ -n $wheel ]] || { echo "chroot_check: --ubuntu is for a --wheel" >&2; exit 1; }
  keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg verify=(--no-check-gpg)
  [[ ! -f $keys ]] || verify=("--keyring=$keys")
  system=("${verify[@]}" --components=main,universe noble "$folder" http://archive.ubuntu.com/ubuntu
          /usr/share/debootstrap/scripts/gutsy)  # which is that of all its releases
else
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' \
    /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1) || true
  system=(bookworm "$folder" "${mirror:-http://deb.debian.org/debian}")
fi
debootstrap --variant=minbase "${system[@]}" >"$folder.log" 2>&1 ||
  { tail -n 5 "$folder.log" >&2; exit 1; }
rm -f "$folder.log"

cp -a /etc/resolv.conf "$folder/etc/" 2>/dev/null || true
if [[ -z $ubuntu ]]; then
  rm -rf "$folder/etc/apt/sources.list" "$folder/etc/apt/sources.list.d"
  cp -a /etc/apt/. "$folder/etc/apt/"
fi
cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/host-certificates.crt"
[[ -f /etc/pip.conf ]] && cp -a /etc/pip.conf "$folder/etc/"
mount_at proc "$folder/proc" -t proc
mount_at /dev "$folder/dev" --bind
[[ -n $toolkit ]] && mount_at "$toolkit" "$folder/usr/local/cuda" --bind -o ro

git clone -q --no-hardlinks . "$folder/srv/libjitgemm"
inside() {
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    PIP_CERT=/etc/host-certificates.crt $(env | grep -E '^(https?_proxy|HTTPS?_PROXY|no_proxy)=') \
    chroot "$folder" bash -c "cd /srv/libjitgemm && $1"
}
commands=("bash tools/demo.sh" "bash tools/test.sh")
if [[ -n $wheel ]]; then
  cp "$wheel" "$folder/srv/"
  check="tools/wheel_check.sh /srv/$(basename "$wheel")"
  get='DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends'
  inside "(apt-get update -q && $get python3 python3-venv) >/tmp/log 2>&1 || { tail -n 5 /tmp/log; exit 1; }"
  commands=("$check none zig" "$get g++ clang >/dev/null 2>&1 && $check none zig g++ clang++")
fi
failed=0
for command in "${commands[@]}"; do
  echo "== $command${toolkit:+  (with a CUDA toolkit)}"
  begin=$SECONDS
  status=0
  inside "$command" || status=$?
  chmod 755 "$folder"  # by now all is installed, which apt's own user could not; tests act as other users, who pass here
  echo "== $command: $((SECONDS - begin)) s, exit status $status${toolkit:+, with a CUDA toolkit}"
  ((status == 0)) || failed=1
done
exit "$failed"
