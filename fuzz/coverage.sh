#!/bin/sh
# Replays the corpora and counts the regions of `ike`, `pki` and `ipsec` that no input reaches. There may be no more of
# them than fuzz/coverage.txt says. Then it counts the steps that the longest messages take, which grow with their
# length alone. Needs no fuzzer: the stable compiler counts. With --by-file it prints where the regions are, those of
# the most first: not reached, all, file. Regions of generic code count where the code is written.
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
  settings="$settings --config profile.dev.package.$package.debug=1"
done
# shellcheck disable=SC2086 # the settings are several words
run() { cargo run --locked $settings --example "$@"; }
case ${1-} in
  --by-file)
    run coverage -- coverage.txt --places |
      sed -n 's/^\(0x[0-9a-f]*\) \([01]\)$/\1 \2/p' >"$target/places"
    sed 's/ .*//' "$target/places" | addr2line -e "$target/debug/examples/coverage" |
      sed 's/ (discriminator.*//' | paste -d ' ' "$target/places" - |
      awk '{
        sub(/:[0-9:?]*$/, "", $3); sub(/.*\/library\//, "library/", $3); sub(/.*\/crates\//, "crates/", $3)
        sub(/.*\/registry\/src\/[^\/]*\//, "", $3)
        all[$3]++; missed[$3] += !$2
      } END { for (file in all) if (missed[file]) print missed[file], all[file], file }' | sort -rn
    exit ;;
  --add)
    # --add FOLDER packs the inputs of a folder that reach more, for example what libFuzzer has found.
    run coverage -- coverage.txt --add "$2"
    exit ;;
esac
run coverage -- coverage.txt
run cost
