#!/usr/bin/env bash
# The measurements of the machine: the packet path, its ciphers and IKE handshakes in process, then tunnels side by side. The RTL's cycles
# and clocks are bench/zynq.py's, bench/sections.py's and make rtl's.
# Arguments go to tunnel.py.
set -eu
cd "$(dirname "$0")/.."
tools/deps.sh --bench
cargo build --locked --release -p esplanade
.venv/bin/python bench/walk.py
.venv/bin/python bench/classifier.py
.venv/bin/python bench/children.py
.venv/bin/python bench/transforms.py
.venv/bin/python bench/engine.py
.venv/bin/python bench/vpn_ab.py
.venv/bin/python bench/path.py
.venv/bin/python bench/handshake.py
.venv/bin/python bench/crowd.py
.venv/bin/python bench/drills.py
.venv/bin/python bench/tunnel.py "$@"
