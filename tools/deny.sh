#!/usr/bin/env bash
# Licences, sources, duplicates and advisories of every dependency, by cargo-deny.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2
tools=${CARGO_TARGET_DIR:-target}/tools
mkdir -p "$tools"
export PATH="$tools/bin:$PATH"
if ! cargo deny --version 2>/dev/null | grep -q "$version"; then
  echo "installing cargo-deny $version into $tools"
  # It runs for seconds: to optimise it would take longer than it saves.
  CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked --quiet --root "$tools" "cargo-deny@$version" --no-default-features
fi
cargo deny --locked check --hide-inclusion-graph bans licenses sources
# The advisory database is a git repository: without a way to it there is nothing to check against.
if ! cargo deny --locked check advisories >"$tools/advisories.log" 2>&1; then
  if grep -qE "failed to (fetch|clone)|fetch advisory database|advisory database" "$tools/advisories.log"; then
    echo "SKIP advisories: the advisory database cannot be fetched from here"
  else
    cat "$tools/advisories.log"
    exit 1
  fi
fi
