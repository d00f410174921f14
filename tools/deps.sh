#!/bin/bash
# Installs what the tests need: Debian packages (only those missing), libreswan, OpenIKED and newer peers
# unpacked beside strongSwan, and a Python environment. What cannot be installed is named and the tests that need
# it report themselves as skipped, so this script only fails on a real mistake of its own.
#
# Usage: tools/deps.sh [--bench] [--list]
set -u
cd "$(dirname "$0")/.."

# package                          reason
# Names behind | are those of older releases; the first that the machine's package sources have is taken.
packages() {
  cat <<'LIST'
strongswan-charon                  the peer IKE daemon, with its ESP in user space (kernel-libipsec)
strongswan-pki                     makes attribute certificates
strongswan-swanctl                 loads the peer's configuration; also a stock client for our control socket
libcharon-extra-plugins            charon plugins
libstrongswan-extra-plugins        Curve25519 and kernel-libipsec
libstrongswan-standard-plugins     openssl plugin: ECDSA, elliptic curve groups, AES-GCM
libldns3t64|libldns3               library that libreswan's pluto links
libevent-pthreads-2.1-7t64|libevent-pthreads-2.1-7 library that libreswan's pluto links
libevent-core-2.1-7t64|libevent-core-2.1-7 library that libreswan's pluto links
libevent-2.1-7t64|libevent-2.1-7   library that OpenIKED's iked links
libnss3-tools                      certutil and pk12util: libreswan keeps its keys in an NSS database
libcurl3t64-gnutls|libcurl3-nss    library that libreswan's pluto links
libunbound8                        library that libreswan's pluto links
tshark                             dissects captures, and decrypts them with the exported keys
ethtool                            turns off the segmentation offload that would hide packets from a capture
iperf3                             throughput
iproute2                           network namespaces, veth
iputils-ping                       ping
nftables                           the NAT box between two gateways
softhsm2                           a PKCS#11 token in software
opensc                             pkcs11-tool, which puts certificates on tokens
oclgrind                           finds races in the kernels of the GPU engine
pocl-opencl-icd                    OpenCL on the CPU, for the kernels of the GPU engine
ocl-icd-libopencl1                 OpenCL's loader, without which PoCL is not found
openssl                            certificate authority made at run time
util-linux                         nsenter, unshare
binutils                           objdump, for the search for possible panics
python3                            the interop suite
python3-venv                       its environment
g++                                compiles the simulated RTL, and what stands in for OpenIKED's kernel
libcrypto++-dev                    the AES finalists, for the benches of rtl/ace
ccache                             the RTL benches share the simulator's objects
LIST
}

bench_packages() {
  cat <<'LIST'
wireguard-go                       comparison in the benchmark
wireguard-tools                    sets up wireguard-go and boringtun
libipsec-mb-dev                    comparison with the CPU engine
libssl-dev                         comparison with the CPU engine
LIST
}

# The interpreter of the environments below: Debian's, if it is there.
python() {
  if [ -x /usr/bin/python3 ]; then /usr/bin/python3 "$@"; else python3 "$@"; fi
}

# Debian's package has the version in its name, which is that of the interpreter.
libpython() {
  local name
  name=$(python -c 'import sys; print("libpython%d.%d" % sys.version_info[:2])' 2>/dev/null) || name=libpython3
  printf '%-34s %s\n' "$name" "the simulations of the RTL load the interpreter as a library (cocotb)"
}

# Which of these names have a version in the package sources. There are none before the first `apt-get update`.
available() {
  LC_ALL=C apt-cache policy "$@" 2>/dev/null |
    awk '/^[^ ]/ { sub(/:$/, ""); name = $0 } $1 == "Candidate:" && $2 != "(none)" { print name }'
}

# Puts the name that this machine's release has in place of the names of each line. A line with no such name stays.
for_this_release() {
  local names rest name known
  # Each word is a name of its own.
  # shellcheck disable=SC2046
  known=$'\n'$(available $(awk '{ gsub(/\|/, " ", $1); print $1 }' <<<"$1"))$'\n'
  while read -r names rest; do
    for name in ${names//|/ }; do
      if [[ $known == *$'\n'$name$'\n'* ]]; then names=$name; break; fi
    done
    if [[ $known == *$'\n'$names$'\n'* ]]; then
      printf '%-34s %s\n' "$names" "$rest"
    else
      printf '%-34s %s\n' "$names" "$rest (no package source of this machine has it)"
    fi
  done <<<"$1"
}

want=$(packages)
for arg in "$@"; do
  case $arg in
    --bench) want+=$'\n'$(bench_packages) ;;
    --list) for_this_release "$(packages; libpython; bench_packages)"; exit 0 ;;
    *) echo "usage: tools/deps.sh [--bench] [--list]" >&2; exit 2 ;;
  esac
done

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

root=()
if [ "$(id -u)" != 0 ]; then
  if sudo -n true 2>/dev/null; then root=(sudo -n); else root=(false); fi
fi

# The packages of a list that are not installed.
missing() {
  local name
  while read -r name _; do installed "$name" || echo "$name"; done < <(for_this_release "$1")
}

as_root() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }

# Installs what is missing of a list of packages and reasons.
install() {
  local found name log
  [ -n "$(missing "$1")" ] || return 0
  log=$(mktemp)
  # The lists may be absent or old on a fresh machine.
  as_root apt-get update -q >"$log" 2>&1 || tail -n 5 "$log" >&2
  # One name that apt does not know would keep it from all others.
  # shellcheck disable=SC2046
  mapfile -t found < <(available $(missing "$1"))
  if [ ${#found[@]} -gt 0 ]; then
    echo "deps: installing ${found[*]}"
    if ! as_root apt-get install -q -y --no-install-recommends "${found[@]}" >"$log" 2>&1; then
      tail -n 5 "$log" >&2
      for name in "${found[@]}"; do as_root apt-get install -q -y --no-install-recommends "$name" >"$log" 2>&1; done
    fi
  fi
  rm -f "$log"
  for name in $(missing "$1"); do
    echo "deps: could not install $name (no root, or no package source has it): its tests will be reported as skipped" >&2
  done
}

if command -v dpkg-query >/dev/null; then
  install "$want"
  # Only now there is surely an interpreter.
  install "$(libpython)"
else
  echo "deps: not a Debian system: install what tools/deps.sh --list names by hand" >&2
fi

# Unpacks a package instead of installing it.
unpack() { # package, one of its programs
  local into=target/tools/$1 work
  if [ -x "$into/$2" ] || ! command -v dpkg >/dev/null; then return; fi
  work=$(mktemp -d)
  if (cd "$work" && apt-get -q download "$1" >/dev/null 2>&1) && mkdir -p "$into" &&
      dpkg -x "$work"/"$1"_*.deb "$into"; then
    echo "deps: $1 unpacked into $into"
  else
    rm -rf "$into"
    echo "deps: could not fetch $1: its tests will be reported as skipped" >&2
  fi
  rm -rf "$work"
}

# Newer peers, out of Debian 13, with the libraries that they need: unpacked, and run in a chroot.
newer=target/tools/debian13
newer_peers() {
  local mirror work package
  if [ -e "$newer/.complete" ] || ! command -v apt-get >/dev/null; then return; fi
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
  work=$(mktemp -d)
  mkdir -p "$work"/{lists/partial,archives/partial} "$newer"
  echo "deb $mirror trixie main" >"$work/sources.list"
  : >"$work/status"
  apt13() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- \
      -o Dir::State::Lists="$work/lists" -o Dir::State::Status="$work/status" -o Dir::Cache="$work" \
      -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
  }
  # The two packages conflict.
  fetch13() { apt13 --download-only -y --no-install-recommends install base-files "$@" >>"$work/log" 2>&1; }
  if apt13 update >"$work/log" 2>&1 &&
      fetch13 strongswan-charon libstrongswan-standard-plugins libstrongswan-extra-plugins libcharon-extra-plugins \
        strongswan-swanctl && fetch13 libreswan libnss3-tools; then
    for package in "$work"/archives/{base-files,[!b]*,b[!a]*}*.deb; do dpkg -x "$package" "$newer"; done
    # The pid files: postinst scripts, which do not run here, make the link.
    rm -rf "$newer/var/run" && ln -s /run "$newer/var/run"
    touch "$newer/.complete"
    echo "deps: strongSwan 6 and libreswan 5 unpacked into $newer"
  else
    tail -n 5 "$work/log" >&2
    rm -rf "$newer"
    echo "deps: could not fetch Debian 13's strongSwan and libreswan: their tests will be reported as skipped" >&2
  fi
  rm -rf "$work"
}

# Makes the Python environment of a directory's requirements. It is complete only once its stamp equals them.
environment() { # venv, requirements, who needs it
  cmp -s "$2" "$1/.requirements" && return
  echo "deps: python environment $1"
  if python -m venv "$1" && "$1/bin/pip" install -q --disable-pip-version-check -r "$2"; then
    cp "$2" "$1/.requirements"
  else
    echo "deps: could not make $1: $3 will be reported as skipped" >&2
  fi
}

# These wait for the network and for one processor at a time.
{
  # The first conflicts with strongSwan's package. The system would start the daemon of the second.
  unpack libreswan usr/libexec/ipsec/pluto
  unpack openiked usr/sbin/iked
} &
newer_peers &
environment .venv interop/requirements.txt "the interop suite" &
environment rtl/.venv rtl/requirements.txt "the RTL's tests" &
environment target/tools/gpu-kernels tools/gpu-kernels.txt "the check of the GPU kernels" &
environment target/tools/gpu-intel tools/gpu-intel.txt "the GPU kernels on Intel's OpenCL" &
wait
exit 0
