#!/usr/bin/env bash
# Fuzzes every target, or those named, for SECONDS_EACH seconds (60 if not set) each.
#
# A nightly toolchain adds AddressSanitizer; the stable one has the same coverage feedback.
set -u -o pipefail
cd "$(dirname "$0")"

# What is built with these flags shares nothing with other builds.
export CARGO_TARGET_DIR=target
# libFuzzer itself is C++.
cxx=${CXX:-c++}
command -v "${cxx%% *}" >/dev/null 2>&1 || {
  echo "fuzz/run.sh: no C++ compiler ($cxx) to build libFuzzer with; install g++ or clang++, or set CXX" >&2
  exit 1
}

# What cargo-fuzz passes, but not --cfg fuzzing: no dependency may behave otherwise than in the product.
flags="-Cpasses=sancov-module -Ccodegen-units=1
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
  -Cllvm-args=-sanitizer-coverage-stack-depth"
toolchain=
if cargo +nightly --version >/dev/null 2>&1; then
  toolchain=+nightly
  flags="$flags -Zsanitizer=address"
  echo "fuzz/run.sh: nightly toolchain, with AddressSanitizer"
else
  echo "fuzz/run.sh: no nightly toolchain: without AddressSanitizer"
fi
# shellcheck disable=SC2086 # no argument is the default toolchain
host=$(rustc $toolchain -vV | sed -n 's/^host: //p')

targets=(${*:-$(ls corpus)})
bins=() cost=
for target in "${targets[@]}"; do
  case $target in
    cost) cost=1 ;;
    *) bins+=(--bin "$target") ;;
  esac
done
# With --target the flags are for the product alone: no build script or macro becomes instrumented.
if [ ${#bins[@]} -gt 0 ]; then
  # shellcheck disable=SC2086
  RUSTFLAGS=$(echo $flags) cargo $toolchain build --profile fuzz --locked --features libfuzzer \
    --target "$host" "${bins[@]}" || exit 1
fi
# This target counts steps by a call at each, in place of libFuzzer's own functions (src/steps.rs). The calls would slow
# the others down.
if [ -n "$cost" ]; then
  flags="$flags -Cllvm-args=-sanitizer-coverage-trace-pc-guard -Clink-arg=-Wl,--allow-multiple-definition"
  # shellcheck disable=SC2086
  RUSTFLAGS=$(echo $flags) cargo $toolchain build --profile fuzz --locked --features libfuzzer,steps \
    --target "$host" --bin cost || exit 1
fi

# Each costs more than most targets do: a backtrace of every allocation, stack frames on the heap, and libFuzzer's
# entropic schedule. Run a finding again without the options to see where memory came from.
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=1:detect_stack_use_after_return=0}
options=(-entropic=0 -max_total_time="${SECONDS_EACH:-60}" -print_final_stats=1)

# Each input of a packed file becomes a file of its own.
python3 - "${targets[@]}" <<'END' || exit 1
import pathlib, sys
for target in sys.argv[1:]:
    folder = pathlib.Path("target/unpacked") / target
    folder.mkdir(parents=True, exist_ok=True)
    for packed in pathlib.Path("corpus", target).glob("*.pack"):
        rest, number = packed.read_bytes(), 0
        while rest:
            end = 2 + int.from_bytes(rest[:2], "big")
            (folder / f"{packed.stem}-{number}").write_bytes(rest[2:end])
            rest, number = rest[end:], number + 1
END

failed=()
for target in "${targets[@]}"; do
  echo "=== $target"
  # Long scripts of these are many short ones one after the other.
  case $target in
    ike_endpoint) len=(-max_len=24) ;;
    walks) len=(-max_len=400) ;;
    ike_peers) len=(-max_len=128) ;;
    # Growth shows in long inputs.
    cost) len=(-max_len=16384) ;;
    *) len=() ;;
  esac
  # New inputs go to the first folder, so that the seeds stay as they are.
  mkdir -p "target/corpus/$target" "artifacts/$target"
  "target/$host/fuzz/$target" "target/corpus/$target" "corpus/$target" "target/unpacked/$target" \
    -artifact_prefix="artifacts/$target/" "${options[@]}" "${len[@]+"${len[@]}"}" || failed+=("$target")
done
[ ${#failed[@]} = 0 ] || { echo "fuzz/run.sh: findings in fuzz/artifacts: ${failed[*]}" >&2; exit 1; }
