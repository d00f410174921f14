#!/usr/bin/env bash
# Every measurement with a record: tunnels side by side, then IKE handshakes. Arguments go to tunnel.py.
set -eu
cd "$(dirname "$0")/.."
tools/deps.sh --bench
cargo build --locked --release --bin esplanade
.venv/bin/python bench/tunnel.py "$@"
.venv/bin/python bench/handshake.py
.venv/bin/python bench/classifier.py
