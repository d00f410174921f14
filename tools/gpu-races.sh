#!/usr/bin/env bash
# Runs a few packets of every transform through the GPU kernels under Oclgrind, which finds races between lanes and
# accesses outside of buffers.
set -eu -o pipefail
cd "$(dirname "$0")/.."
library=$(find /usr/lib -name liboclgrind-rt.so -print -quit)
if [ -z "$library" ] || ! command -v oclgrind >/dev/null; then
  echo "SKIP oclgrind: it is not installed (tools/deps.sh)"
  exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Oclgrind does not know all that clang's optimiser makes.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="oclgrind --data-races --build-options -cl-opt-disable"
OPENCL_DYLIB_PATH=$library ESPLANADE_GPU=oclgrind \
  cargo test --locked --workspace --test differential -- --nocapture a_few_of_all_transforms 2>&1 | tee "$log"
if grep -qiE 'race|invalid (read|write)|SKIP' "$log"; then
  echo "Oclgrind has found something, or has not run"
  exit 1
fi
