#!/usr/bin/env bash
# Tries the README's two commands in a fresh clone in a bare Debian 12, without GPU, and times them.
#
#   tools/chroot_check.sh [--toolkit DIR] [--keep] [folder]
#
# --toolkit mounts a CUDA toolkit at /usr/local/cuda inside; without it NVRTC comes from PyPI. Needs root and debootstrap.
# The host's apt and pip settings and certificates are copied in; nothing else of the host is seen there.
set -euo pipefail
[[ ${1:-} != --help && ${1:-} != -h ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

toolkit='' keep='' folder=''
while (($#)); do
  case $1 in
    --toolkit) toolkit=$(realpath "$2"); shift ;;
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

mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' \
  /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1) || true
debootstrap --variant=minbase bookworm "$folder" "${mirror:-http://deb.debian.org/debian}" >"$folder.log" 2>&1 ||
  { tail -n 5 "$folder.log" >&2; exit 1; }
rm -f "$folder.log"

cp -a /etc/resolv.conf "$folder/etc/" 2>/dev/null || true
rm -rf "$folder/etc/apt/sources.list" "$folder/etc/apt/sources.list.d"
cp -a /etc/apt/. "$folder/etc/apt/"
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
failed=0
for command in "bash tools/demo.sh" "bash tools/test.sh"; do
  echo "== $command${toolkit:+  (with a CUDA toolkit)}"
  begin=$SECONDS
  status=0
  inside "$command" || status=$?
  chmod 755 "$folder"  # by now all is installed, which apt's own user could not; tests act as other users, who pass here
  echo "== $command: $((SECONDS - begin)) s, exit status $status${toolkit:+, with a CUDA toolkit}"
  ((status == 0)) || failed=1
done
exit "$failed"
