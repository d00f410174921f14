#!/usr/bin/env bash
# Synthesises, and places and routes where it fits, what bench/records has, a record a line. Takes hours on two cores.
set -eu
cd "$(dirname "$0")/../.."
ecp5() { rtl/run python rtl/syn/ecp5.py "$@"; }
# CIPHER POLICIES/SADS/CIPHERS/HMACS: a configuration of Gateway 2.0, as in bench/sections.py.
sections() {
  local cipher=$1 units=$2 policies sads ciphers hmacs
  shift 2
  IFS=/ read -r policies sads ciphers hmacs <<<"$units"
  ecp5 --top esp_sections --name "esp_sections-$cipher-${units//\//-}" --set Policies="$policies" --set Sads="$sads" --set Encaps="$sads" \
    --set Aes="$([ "$cipher" = aes ] && echo "$ciphers" || echo 0)" --set Des="$([ "$cipher" = des ] && echo "$ciphers" || echo 0)" \
    --set Hmacs="$hmacs" --set Rows=64 "$@"
}

ecp5 --top shell_esp_out --set PolicyPiece=4 --grades 8 --aim 152 --seeds 1,2
ecp5 --top shell_esp_out --set PolicyPiece=4 --grades 6 --seeds 2
ecp5 --top shell_esp_out --name esp_out-ctr --set HmacUnits=2 --set Gcm=0 --set PolicyPiece=4 --grades 8 --aim 100
inbound="--top esp_in --grades 8 --set Entries=64 --set Rows=1024 --set PolicyPiece=4 --set RoundLatency=3 --set SboxKind=1"
ecp5 $inbound --aim 140 --seeds 2 --set GhashStages=4 --set GhashLeaf=8
ecp5 $inbound --name esp_in-ctr --aim 100 --set HmacUnits=2 --set Gcm=0
ecp5 --top shell_esp_cipher --jobs 2
sections aes 2/2/3/2 --grades 8
for units in 4/4/6/4 8/8/12/8; do sections aes $units --synthesis-only; done
for units in 4/4/4/4 4/4/4/8 8/8/8/16; do sections des $units --synthesis-only; done
ecp5 --top shell_ghash --name ghash --aim 250 --seeds 1,2 --jobs 2
ecp5 --top aes_pipe --set RoundLatency=3 --set SboxKind=1 --aim 250 --seeds 1,2 --jobs 2
ecp5 --top sha256_core --aim 250 --seeds 1,2,3 --jobs 2
ecp5 --top sha1_core --aim 250 --seeds 1,2,3 --jobs 2
# The AES finalists by their number, in the ACE paper's configuration.
aes_finalist() { ecp5 --top ace_cipher --set Algorithm="$1" --set Decrypts=0 --set LongKeys=0 --name "ace-$2-128" --grades 6 --aim 120 "${@:3}"; }
aes_finalist 0 rijndael
aes_finalist 1 serpent --placer heap
aes_finalist 2 twofish --placer heap
aes_finalist 3 rc6 --placer heap
aes_finalist 4 mars --placer heap
# The lane with each of them, as bitstreams.
rtl/run python rtl/syn/ace_bitstreams.py --record
rtl/run python rtl/syn/ice40.py --record
