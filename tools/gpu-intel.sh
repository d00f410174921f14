#!/usr/bin/env bash
# Runs the GPU kernels on Intel's OpenCL for CPUs too, whose compiler is another one than PoCL's. It packs lanes into
# vectors, as a GPU does.
set -eu -o pipefail
cd "$(dirname "$0")/.."
libraries=$PWD/target/tools/gpu-intel/lib
if ! cmp -s tools/gpu-intel.txt target/tools/gpu-intel/.requirements; then
  echo "SKIP gpu-intel: Intel's OpenCL is not installed (tools/deps.sh)"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/icd" "$work/lib"
echo "$libraries/libintelocl.so" >"$work/icd/intel.icd"
# Their loader would hide the system's.
find "$libraries" -maxdepth 1 -name '*.so*' ! -name 'libOpenCL*' -exec ln -s -t "$work/lib" {} +
export OCL_ICD_VENDORS=$work/icd LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ESPLANADE_GPU=intel
cargo test --locked --workspace --test differential -- --show-output a_mix packets_in | tee "$work/log"
if grep -q '^SKIP' "$work/log"; then
  echo "the kernels have not run on Intel's OpenCL"
  exit 1
fi
