#!/bin/sh
# A RUSTC_WRAPPER. In `ike`, `pki` and `ipsec` the compiler counts how often each region of the code runs, and keeps a
# table of where the regions are. In `ike` and `pki`, and in the decoders that they use, it calls a function at each
# step (src/steps.rs).
regions="-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
steps=-Cllvm-args=-sanitizer-coverage-trace-pc-guard
# shellcheck disable=SC2086 # the regions take two words
case " $* " in
  *" --crate-name esplanade_ike "* | *" --crate-name esplanade_pki "*) set -- "$@" $regions "$steps" ;;
  *" --crate-name esplanade_ipsec "*) set -- "$@" $regions ;;
  *" --crate-name der "* | *" --crate-name x509_cert "* | *" --crate-name x509_ocsp "* | *" --crate-name spki "*)
    set -- "$@" "$steps" ;;
  *) exec "$@" ;;
esac
exec "$@" "-Cpasses=function(lower-invoke,unreachableblockelim) sancov-module" -Cllvm-args=-sanitizer-coverage-level=3
