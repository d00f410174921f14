#!/usr/bin/env bash
# Runs the two commands of README.md on a Debian that has git, a C compiler, make and this machine's rustup, and
# nothing else. Needs root and mmdebstrap, takes 15 GB, and is no part of `make test`.
#   tools/bare-root.sh trixie               HEAD, `make demo`, then `make test` as in CI
#   tools/bare-root.sh bookworm make demo   the same, with another command
# The root stays in target/bare-root. The next run of the suite goes on in it: remove it to begin afresh.
set -eu -o pipefail
cd "$(dirname "$0")/.."
suite=${1:?usage: tools/bare-root.sh SUITE [COMMAND...]}
shift
[ $# -gt 0 ] || set -- bash -c 'time make demo && time CI=true make test'
root=$PWD/target/bare-root/$suite
home=$HOME
[ -z "${SUDO_USER:-}" ] || home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
cargo=${CARGO_HOME:-$home/.cargo}

# Dates and proxies, as this machine has them.
apt_options() { apt-config dump Acquire | grep -E '^Acquire::(Check-|https?::)' || true; }

# The way to the network is this machine's: what pip and cargo are told, the resolver, authorities of its own.
surroundings() {
  local file
  for file in /etc/hosts /etc/resolv.conf /etc/pip.conf; do
    [ ! -e "$file" ] || cp -L "$file" "$root$file"
  done
  mkdir -p "$root/usr/local/share/ca-certificates" "$root/root/.cargo"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t "$root/usr/local/share/ca-certificates" {} +
  chroot "$root" update-ca-certificates >/dev/null 2>&1
  cp -r "$cargo/bin" "$root/root/.cargo"
  for file in "$cargo"/config "$cargo"/config.toml; do
    [ ! -e "$file" ] || cp "$file" "$root/root/.cargo"
  done
}

if [ ! -e "$root/.complete" ]; then
  rm -rf "$root"
  mkdir -p "${root%/*}"
  options=$(mktemp)
  apt_options >"$options"
  mmdebstrap --variant=minbase --include=git,gcc,libc6-dev,make,ca-certificates --aptopt="$options" "$suite" "$root"
  rm -f "$options"
  surroundings
  touch "$root/.complete"
fi
if [ ! -e "$root/root/esplanade" ]; then
  git clone -q --no-hardlinks --no-checkout . "$root/root/esplanade"
fi
git -C "$root/root/esplanade" fetch -q "$PWD" HEAD
git -C "$root/root/esplanade" checkout -q --detach FETCH_HEAD

variables=(HOME=/root USER=root LANG=C.UTF-8 TERM="${TERM:-dumb}"
  PATH=/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while read -r name; do
  variables+=("$name=${!name}")
done < <(compgen -e | grep -Ei '^(CI$|PIP_|SSL_CERT_|GIT_SSL_|REQUESTS_CA|CURL_CA|CARGO_(HTTP|NET|REGISTR|SOURCE))|_proxy$')
mkdir -p "$root/root/.rustup"
# The mounts go with the last process. A process whose root is not that of its mounts may make no user namespace.
exec unshare --mount sh -c '
  set -e
  root=$1 rustup=$2
  shift 2
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mount --bind "$rustup" "$root/root/.rustup"
  cd "$root"
  pivot_root . mnt
  exec chroot . sh -c "umount -l /mnt && exec \"\$@\"" sh env -i -C /root/esplanade "$@"
' sh "$root" "${RUSTUP_HOME:-$home/.rustup}" "${variables[@]}" "$@"
