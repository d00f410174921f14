#!/bin/sh
# Replays the corpora and counts the regions of `ike`, `pki` and `ipsec` that no input reaches. There may be no more of them than
# fuzz/coverage.txt says. Then it counts the steps that the longest messages take, which grow with their length alone.
# Needs no fuzzer: the stable compiler counts.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
export CARGO_TARGET_DIR="$target"
cd "$root/fuzz"
# Another compiler makes other regions of the same code.
wanted=$(sed -n 's/^compiler = //p' coverage.txt)
case $(rustc --version) in "$wanted "*) ;; *)
  echo "SKIP fuzz-coverage: fuzz/coverage.txt is for $wanted"
  exit 0 ;;
esac
export RUSTC_WRAPPER="$PWD/instrument.sh"
# Incremental builds divide the code otherwise.
export CARGO_INCREMENTAL=0
# cargo does not know that the wrapper adds flags. Another setting of these packages gives their objects other names.
settings=
for package in der spki x509-cert x509-ocsp esplanade-ike esplanade-pki esplanade-ipsec; do
  settings="$settings --config profile.dev.package.$package.debug=false"
done
# shellcheck disable=SC2086 # the settings are several words
run() { cargo run --locked $settings --example "$@"; }
run coverage -- coverage.txt
run cost
