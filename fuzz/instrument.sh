#!/bin/sh
# A RUSTC_WRAPPER: has the compiler count, in `ike` and `ipsec` alone, how often each region of the code runs.
case " $* " in
  *" --crate-name esplanade_ike "*|*" --crate-name esplanade_ipsec "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters ;;
  *) exec "$@" ;;
esac
