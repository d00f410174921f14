#!/bin/bash
# Writes vectors/ike/attributes: attribute certificates for holders of vectors/ike/certs, and their authorities, with
# strongSwan's `pki` (package strongswan-pki). Keys and serial numbers are new on every run.
set -eu
cd "$(dirname "$0")/ike/attributes"
pki=(pki)
quiet() { "$@" 2>/dev/null; }
from=(--not-before "01.01.26 00:00:00" --not-after "01.01.66 00:00:00")
holder=../certs/moon-ecdsa256.pem

key() { quiet "${pki[@]}" --gen --outform pem "${@:2}" >"$1"; }
acert() { # FILE ISSUER [OPTIONS]
  quiet "${pki[@]}" --acert --issuerkey "$2.key" --issuercert "$2.pem" --outform pem "${@:3}" >"$1"
}

key root.key --type ecdsa --size 256
quiet "${pki[@]}" --self --ca --in root.key --type ecdsa --dn "O=Example, CN=root of attributes" "${from[@]}" \
  --outform pem >root.pem
# Two authorities of one name: the second has the key of a renewal.
for name in aa aa-renewed; do
  key $name.key --type ecdsa --size 256
  quiet "${pki[@]}" --issue --in $name.key --type ecdsa --cacert root.pem --cakey root.key "${from[@]}" \
    --dn "O=Example, CN=attribute authority" --outform pem >$name.pem
done
quiet "${pki[@]}" --issue --in aa.key --type ecdsa --cacert root.pem --cakey root.key \
  --not-before "01.01.26 00:00:00" --not-after "01.02.26 00:00:00" \
  --dn "O=Example, CN=attribute authority" --outform pem >aa-expired.pem
key self.key --type rsa --size 2048
quiet "${pki[@]}" --self --in self.key --type rsa --dn "O=Example, CN=another attribute authority" "${from[@]}" \
  --outform pem >self.pem

acert research.pem aa --in $holder --group Research --group Development "${from[@]}"
acert sales.pem aa --in $holder --group Sales "${from[@]}"
acert renewed.pem aa-renewed --in $holder --group Research "${from[@]}"
acert sun.pem aa --in ../certs/sun.pem --group Research "${from[@]}"
acert pkcs1.pem self --in $holder --group Research "${from[@]}"
acert pss.pem self --in $holder --group Research --rsa-padding pss --digest sha384 "${from[@]}"
acert expired.pem aa --in $holder --group Research --not-before "01.01.26 00:00:00" --not-after "01.02.26 00:00:00"
acert not-yet.pem aa --in $holder --group Research --not-before "01.01.36 00:00:00" --not-after "01.02.36 00:00:00"
rm root.key aa-renewed.key self.key
