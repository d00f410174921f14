#!/usr/bin/env bash
# Fuzzes every target, or those named, for SECONDS_EACH seconds (60 if not set) each.
set -u -o pipefail
cd "$(dirname "$0")/.."

missing() {
  echo "fuzz/run.sh: $1 is missing; install it with: $2" >&2
  exit 1
}
cargo +nightly --version >/dev/null 2>&1 ||
  missing "the nightly toolchain" "rustup toolchain install nightly --profile minimal"
cargo +nightly fuzz --version >/dev/null 2>&1 || missing cargo-fuzz "cargo install cargo-fuzz"

failed=()
for target in ${*:-$(ls fuzz/corpus)}; do
  echo "=== $target"
  # New inputs go to the first folder, so that the seeds stay as they are.
  found=$PWD/fuzz/target/corpus/$target
  mkdir -p "$found"
  cargo +nightly fuzz run --features libfuzzer "$target" "$found" "$PWD/fuzz/corpus/$target" -- \
    -max_total_time="${SECONDS_EACH:-60}" || failed+=("$target")
done
[ ${#failed[@]} = 0 ] || { echo "fuzz/run.sh: findings in fuzz/artifacts: ${failed[*]}" >&2; exit 1; }
