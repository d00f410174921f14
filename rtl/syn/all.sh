#!/usr/bin/env bash
# Synthesises, places and routes what bench/records has, a record a line. Takes hours on two cores.
set -eu
cd "$(dirname "$0")/../.."
ecp5() { rtl/run python rtl/syn/ecp5.py "$@"; }

ecp5 --top shell_esp_out --ripup --jobs 2
ecp5 --top shell_esp_cipher --jobs 2
ecp5 --top esp_sections --name esp_sections-aes-2-2-3-2 --jobs 2 \
  --set Policies=2 --set Sads=2 --set Encaps=2 --set Aes=3 --set Hmacs=2 --set Rows=64
ecp5 --top shell_ghash --name ghash --aim 250 --seeds 1,2 --jobs 2
ecp5 --top aes_pipe --set RoundLatency=3 --set SboxKind=1 --aim 250 --seeds 1,2 --jobs 2
ecp5 --top sha256_core --aim 250 --seeds 1,2,3 --jobs 2
ecp5 --top sha1_core --aim 250 --seeds 1,2,3 --jobs 2
