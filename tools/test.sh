#!/usr/bin/env bash
# Runs every check and test, stage by stage, and ends with the totals.
#   tools/test.sh            all stages
#   tools/test.sh lint       only the named stages
#   tools/test.sh soak       all stages, and those that take too long for each commit (make soak)
# A stage that fails does not stop the others. Skipped tests are named; with CI set, a skip that
# tools/expected-skips.txt does not list is a failure.
set -u -o pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# A clean build has no use for incremental state, which takes gigabytes.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0
logs=${CARGO_TARGET_DIR:-target}/test-logs
mkdir -p "$logs"
rm -f "$logs"/*

skipped=0
# Seconds. CI ends a run after 90 minutes, and its log is lost with it.
longest=5000
[ -n "${CI:-}" ] || longest=86400

# stage NAME COMMAND...: runs it with its output on the terminal and in a log. tools/budget.txt has the seconds of
# processors that it may use. A stage that waits for something that never comes ends after three times as long.
stage() {
  local name=$1; shift
  local started=$SECONDS log=$logs/$name.log rc p f budget wall used
  budget=$(awk -v name="$name" '$1 == name { print $2 }' tools/budget.txt)
  [ -n "$budget" ] || { echo "tools/budget.txt does not name the stage $name" >&2; exit 2; }
  # What is drawn by the commit otherwise runs whole.
  [ -z "${SOAK:-}" ] || budget=$((20 * budget))
  wall=$((3 * budget + 60))
  [ -z "${BOUNDED_IDLE:-}" ] || wall=$longest
  [ "$wall" -lt $((longest - SECONDS)) ] || wall=$((longest - SECONDS))
  printf '\n=== %s: %s\n' "$name" "$*"
  if [ "$wall" -gt 0 ]; then
    tools/bounded.sh "$budget" "$wall" "$log" "$@"
    rc=$?
  else
    echo "ENDED: the stages before it have left no time" | tee "$log"
    echo 0 >"$log.cpu"
    rc=124
  fi
  used=$(tail -n 1 "$log.cpu")
  printf '%-14s %5d s of processors, %5d allowed, %5d s\n' "$name" "$used" "$budget" $((SECONDS - started)) \
    >"$logs/$name.total"
  printf '=== %s: %s in %s s\n' "$name" "$([ "$rc" = 0 ] && echo ok || echo "FAILED ($rc)")" $((SECONDS - started))
  read -r p f <<<"$(tally "$log")"
  if [ $((p + f)) = 0 ]; then
    if [ "$rc" = 0 ]; then p=1; else f=1; fi
  elif [ "$rc" != 0 ] && [ "$f" = 0 ]; then
    f=1
  fi
  echo "$p $f" >"$logs/$name.tally"
  [ "$rc" = 0 ] || { echo "FAILED: $name (log: $log)"; reasons "$log"; } >"$logs/$name.failure"
}

# What failed and why, out of a log: shown again at the end, where nobody has to look for it.
reasons() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | grep -aE '^(FAILED|ERROR|E  ) |^error|panicked at|\.\.\. FAILED$|^ENDED: |No space left on device' | tail -n 40 | sed 's/^/  /'
}

# Sums the closing lines of cargo test and pytest in a log: "passed failed".
tally() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    /^test result:/ { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^failed/) f += $i } }
    /^=+ .*(passed|failed|error|skipped).* in [0-9.]+s.* =+$/ {
      for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^(failed|errors?)/) f += $i } }
    END { print p + 0, f + 0 }'
}

# What finds most comes first.
all="deps format unit interop clippy newest userns fuzz-coverage docs panics deny kernels mutants-sample rtl-lint rtl-test rtl-formal"
soak="release simulation storms mutants add-a-cipher"
asked=$*
names=" ${*:-$all} "
names=${names/ soak / $all $soak }
names=${names/ lint / format clippy docs deny }
# They wait for nothing and have no clock, so they run beside the others, in the time that those leave processors idle.
quiet="deny rtl-lint rtl-test rtl-formal"

# if_drawn NAME PATH... -- COMMAND...: runs a stage whose result depends on these paths alone. It is left out where they
# are as they were and the commit does not draw it; a stage that is asked for, and a soak, leave nothing out.
if_drawn() {
  local name=$1 paths=()
  shift
  while [ "$1" != -- ]; do paths+=("$1"); shift; done
  shift
  if [ -z "$asked${SOAK:-}" ] && ! tools/sampling.py "$name" "${paths[@]}" >"$logs/$name.left-out"; then
    cat "$logs/$name.left-out"
    return
  fi
  rm -f "$logs/$name.left-out"
  stage "$name" "$@"
}

# Seeds of a stage that runs any number of them.
many=5000
[ -z "${SOAK:-}" ] || many=100000

# Runs the stages of one name.
run() {
  case $1 in
    deps) stage deps tools/deps.sh ;;
    format) stage format cargo fmt --all --check ;;
    clippy)
      stage clippy cargo clippy --locked --workspace --all-targets -- -D warnings
      # The decompressor of crates/ace for a controller without an operating system.
      stage clippy-core cargo clippy --locked -p esplanade-ace --no-default-features -- -D warnings ;;
    docs) RUSTDOCFLAGS="-D warnings" stage docs cargo doc --locked --workspace --no-deps --document-private-items ;;
    deny) if_drawn deny Cargo.lock ':(glob)**/Cargo.toml' deny.toml tools/deny.sh -- tools/deny.sh ;;
    panics) stage panics tools/panics.py ;;
    kernels)
      # Each alone would leave a processor idle.
      if_drawn kernels crates/gpu crates/crypto/src/cpu/des/networks.rs crates/crypto/src/transform.rs ':(glob)tools/gpu-*' \
        -- tools/together.sh tools/gpu-kernels.py tools/gpu-races.sh tools/gpu-intel.sh ;;
    # Without --show-output the harness keeps the SKIP lines of passing tests to itself.
    unit) stage unit cargo test --locked --workspace --no-fail-fast -- --show-output ;;
    fuzz-coverage) stage fuzz-coverage fuzz/coverage.sh ;;
    interop) stage interop interop/run ;;
    # The other stages run the debug profile. What is shipped has other code in it, and chooses other tiers.
    release)
      stage release-build cargo build --locked --release -p esplanade
      ESPLANADE_BIN=$(realpath "${CARGO_TARGET_DIR:-target}")/release/esplanade \
        stage release interop/run test_tunnel.py test_algorithms.py test_engines.py test_restart.py test_tiers.py \
        -k "test_psk and v4 or test_esp_with_strongswan and chacha20 or test_esp_among_ourselves and iiv or \
            test_swaps and raw or test_a_peer_that_is_killed or test_tiers and (aes256gcm16 or chacha20)" ;;
    # Among the unit tests it runs a few hundred seeds.
    simulation)
      ESPLANADE_SIMULATION_SEEDS=${ESPLANADE_SIMULATION_SEEDS:-$many} \
        stage simulation cargo test --locked --workspace --test simulation -- --nocapture ;;
    storms)
      ESPLANADE_IKE_SEEDS=${ESPLANADE_IKE_SEEDS:-$many} \
        stage storms cargo test --locked --workspace --test storms -- --nocapture ;;
    # Faults in the sources, which the tests must notice. A soak has all of them.
    mutants-sample) [ -n "${SOAK:-}" ] || stage mutants-sample tools/mutants.py sample ;;
    mutants) stage mutants tools/mutants.py run ;;
    # The cipher of docs/add-a-cipher.md, in a copy of the sources.
    add-a-cipher) stage add-a-cipher tools/add-a-cipher.py run ;;
    # What depends on the peer's release, and does not take long.
    newest)
      if [ ! -e target/tools/debian13/.complete ]; then
        echo "SKIP newest: Debian 13's peers are not unpacked (tools/deps.sh)" | tee "$logs/newest.log"
        return
      fi
      stage newest interop/run --newest test_libreswan.py test_tunnel.py test_choice.py test_credentials.py \
        test_fragmentation.py test_reauthentication.py test_revocation.py test_lifecycle.py \
        -k "not esplanade-to-esplanade and not test_psk and not test_suites and not under_load and not by_time" ;;
    userns) stage userns interop/run --user -k test_psk ;;
    rtl-formal) if_drawn rtl-formal rtl -- rtl/run formal ;;
    rtl-*) stage "$1" rtl/run "${1#rtl-}" ;;
  esac
}

foreground=() beside=()
for name in $names; do
  case " $all $soak " in
    *" $name "*) ;;
    *) echo "unknown stage: $name (known: $all $soak lint soak)" >&2; exit 2 ;;
  esac
  case " $quiet " in
    *" $name "*) beside+=("$name") ;;
    *) foreground+=("$name") ;;
  esac
done
# What the others need.
if [ "${foreground[0]-}" = deps ]; then
  run deps
  foreground=("${foreground[@]:1}")
fi
if [ ${#foreground[@]} -gt 0 ] && [ ${#beside[@]} -gt 0 ]; then
  printf '\n=== beside the other stages: %s\n' "${beside[*]}"
  (for name in "${beside[@]}"; do BOUNDED_IDLE=1 run "$name"; done) >"$logs/beside" 2>&1 &
  lane=$!
  trap 'kill "$lane"; pkill -TERM -P "$lane"; exit 130' INT TERM
  for name in "${foreground[@]}"; do run "$name"; done
  tail -n +1 -f --pid="$lane" "$logs/beside"
  wait "$lane"
else
  for name in "${foreground[@]}" "${beside[@]}"; do run "$name"; done
fi

echo
unexpected=0
# A second word is the release on which alone a test may be skipped.
expected=$(awk -v release="$(. /etc/os-release 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}")" \
  '{ sub(/#.*/, "") } NF == 1 || NF == 2 && $2 == release { print $1 }' tools/expected-skips.txt)
while IFS= read -r line; do
  skipped=$((skipped + 1))
  name=${line#SKIP }; name=${name%%:*}
  if grep -qxF "$name" <<<"$expected"; then
    echo "$line (expected)"
  else
    echo "$line"; unexpected=$((unexpected + 1))
  fi
done < <(cat "$logs"/*.log 2>/dev/null | grep -a '^SKIP ' | sort -u)
if [ "$unexpected" -gt 0 ] && [ -n "${CI:-}" ]; then
  echo "0 $unexpected" >"$logs/skips.tally"
  echo "FAILED: $unexpected unexpected skips" >"$logs/skips.failure"
fi
read -r passed failed < <(cat "$logs"/*.tally | awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }')
cat "$logs"/*.failure 2>/dev/null
# In the order in which they ended.
(cd "$logs" && ls -tr -- *.total | xargs cat)
cat "$logs"/*.left-out 2>/dev/null
echo "took $SECONDS s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
