#!/usr/bin/env python3
"""Writes vectors/paths/ocsp.json: answers of OCSP responders about one path, with what follows.

`openssl` says whether `openssl ocsp` accepts the responder of each answer. It takes the time from the clock, so the
verdicts on times are ours.
"""

import base64
import datetime
import json
import pathlib
import subprocess
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

OUT = pathlib.Path(__file__).parent / "paths" / "ocsp.json"
# 2026-06-01.
NOW = 1_780_272_000
MINUTE, HOUR, DAY = (datetime.timedelta(**{unit: 1}) for unit in ("minutes", "hours", "days"))
TIME = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
DER, PEM = serialization.Encoding.DER, serialization.Encoding.PEM
GOOD, REVOKED, UNKNOWN = ocsp.OCSPCertStatus.GOOD, ocsp.OCSPCertStatus.REVOKED, ocsp.OCSPCertStatus.UNKNOWN

keys, certificates, answers, crls, cases = {}, {}, {}, {}, []


def key(label):
    return keys.setdefault(label, ec.generate_private_key(ec.SECP256R1()))


def name(common):
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
                      x509.NameAttribute(NameOID.COMMON_NAME, common)])


def certificate(label, issuer, serial, *, ca=False, purpose=None, signer=None, end=365 * DAY, uris=False):
    builder = (x509.CertificateBuilder().subject_name(name(label)).issuer_name(name(issuer)).serial_number(serial)
               .public_key(key(label).public_key()).not_valid_before(TIME - 365 * DAY).not_valid_after(TIME + end)
               .add_extension(x509.BasicConstraints(ca, None), True))
    if purpose:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
    if label == "leaf":
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("moon.example.org")]), False)
        builder = builder.add_extension(x509.AuthorityInformationAccess([x509.AccessDescription(
            x509.oid.AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier("http://ocsp.example.org/"))]), False)
        builder = builder.add_extension(x509.CRLDistributionPoints([x509.DistributionPoint(
            [x509.UniformResourceIdentifier("http://crl.example.org/ca.crl"),
             x509.UniformResourceIdentifier("ldap://crl.example.org/ca")], None, None, None)]), False)
    certificates[label] = builder.sign(key(signer or issuer), hashes.SHA256())


def answer(label, status=GOOD, *, about="leaf", issuer="ca", responder="ca", start=-HOUR, end=DAY, algorithm=None,
           certs=True, by_name=False):
    revoked = status == REVOKED
    builder = ocsp.OCSPResponseBuilder().add_response(
        cert=certificates[about], issuer=certificates[issuer], algorithm=algorithm or hashes.SHA1(), cert_status=status,
        this_update=TIME + start, next_update=end and TIME + end, revocation_time=TIME - 2 * DAY if revoked else None,
        revocation_reason=x509.ReasonFlags.key_compromise if revoked else None)
    encoding = ocsp.OCSPResponderEncoding.NAME if by_name else ocsp.OCSPResponderEncoding.HASH
    builder = builder.responder_id(encoding, certificates[responder])
    if certs and responder != "ca":
        builder = builder.certificates([certificates[responder]])
    answers[label] = builder.sign(key(responder), hashes.SHA256()).public_bytes(DER)


def openssl(label):
    with tempfile.TemporaryDirectory() as folder:
        def file(file, content):
            path = pathlib.Path(folder) / file
            path.write_bytes(content)
            return str(path)
        pems = {one: file(one, certificates[one].public_bytes(PEM)) for one in ("root", "ca", "leaf")}
        result = subprocess.run(["openssl", "ocsp", "-respin", file("answer", answers[label]), "-issuer", pems["ca"],
                                 "-cert", pems["leaf"], "-CAfile", pems["root"], "-verify_other", pems["ca"],
                                 "-attime", str(NOW), "-no_nonce"], capture_output=True, text=True)
        return "Response verify OK" in result.stderr


def case(title, given, strict, relaxed, *, sent=None, lists=(), trusts=False, says=None, reason=None):
    """`sent`: what follows under `strict` if the peer sends the answers. `trusts`: the configuration trusts the stranger as
    a responder."""
    one = {"name": title, "answers": given, "crls": list(lists), "strict": strict, "relaxed": relaxed}
    if sent is not None:
        one["sent"] = sent
    if trusts:
        one["trusts"] = "stranger"
    if says:
        one["says"] = says
    if len(given) == 1:
        one["openssl"] = openssl(given[0])
        # From an answer whose responder OpenSSL refuses, nothing follows.
        assert one["openssl"] or trusts or (strict, relaxed) == (False, True), title
    if reason:
        one["reason"] = reason
    cases.append(one)


certificate("root", "root", 1, ca=True)
certificate("ca", "root", 0x22, ca=True)
certificate("leaf", "ca", 0x8234)
certificate("other", "ca", 0x1235)
certificate("delegate", "ca", 0x30, purpose=ExtendedKeyUsageOID.OCSP_SIGNING)
certificate("expired", "ca", 0x31, purpose=ExtendedKeyUsageOID.OCSP_SIGNING, end=-DAY)
certificate("revoked", "ca", 0x32, purpose=ExtendedKeyUsageOID.OCSP_SIGNING)
certificate("server", "ca", 0x33, purpose=ExtendedKeyUsageOID.SERVER_AUTH)
certificate("stranger", "stranger", 0x34, purpose=ExtendedKeyUsageOID.OCSP_SIGNING)
certificate("above", "root", 0x35, purpose=ExtendedKeyUsageOID.OCSP_SIGNING)

for label, issuer, serials in (("root", "root", []), ("ca", "ca", []), ("delegates", "ca", [0x32]), ("lists", "ca", [0x8234])):
    builder = x509.CertificateRevocationListBuilder().issuer_name(name(issuer))
    builder = builder.last_update(TIME - HOUR).next_update(TIME + 7 * DAY).add_extension(x509.CRLNumber(5), False)
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(TIME - 2 * DAY)
        builder = builder.add_revoked_certificate(entry.build())
    crls[label] = builder.sign(key(issuer), hashes.SHA256()).public_bytes(DER)

answer("good")
answer("by-name", by_name=True)
answer("sha256", algorithm=hashes.SHA256())
answer("sha512", algorithm=hashes.SHA512())
answer("lists", REVOKED)
answer("lists-old", REVOKED, start=-9 * DAY, end=-DAY)
answer("good-older", start=-2 * HOUR)
answer("good-newest", start=-MINUTE)
answer("unknown", UNKNOWN)
answer("stale", start=-9 * DAY, end=-DAY)
answer("early", start=HOUR)
answer("skewed", start=2 * MINUTE)
answer("good-yesterday", start=-25 * HOUR, end=9 * DAY)
answer("no-end", start=-5 * MINUTE, end=None)
answer("no-end-old", start=-15 * MINUTE, end=None)
answer("about-other", about="other")
answer("delegated", responder="delegate")
answer("delegated-lists", REVOKED, responder="delegate")
answer("delegated-bare", responder="delegate", certs=False)
answer("expired", responder="expired")
answer("by-revoked", REVOKED, responder="revoked")
answer("server", responder="server")
answer("stranger", responder="stranger")
answer("stranger-lists", REVOKED, responder="stranger")
answer("above", responder="above")
answer("itself", responder="leaf")
flipped = bytearray(answers["good"])
flipped[-1] ^= 1
answers["forged"] = bytes(flipped)

LISTS = ["root"]
case("no answer", [], False, True, lists=LISTS, says="there is no CRL")
case("good", ["good"], True, True, lists=LISTS)
case("responder by name", ["by-name"], True, True, lists=LISTS)
case("SHA-256 names the issuer", ["sha256"], True, True, lists=LISTS)
case("SHA-512 names the issuer", ["sha512"], False, True, lists=LISTS, reason="we ask with SHA-1, and take SHA-256 too")
case("revoked", ["lists"], False, False, lists=LISTS, says="was revoked at 2026-05-30T00:00:00Z: keyCompromise")
case("revoked, and the answer is old", ["lists-old"], False, False, lists=LISTS, says="was revoked")
case("the newest counts", ["lists-old", "good"], True, True, lists=LISTS)
case("the newest counts, in any order", ["good", "lists-old"], True, True, lists=LISTS)
case("revoked since the good answer", ["good-older", "lists"], False, False, lists=LISTS, says="was revoked")
case("good after the revocation", ["lists", "good-newest"], True, True, lists=LISTS)
case("unknown", ["unknown"], False, True, lists=LISTS)
case("stale", ["stale"], False, True, lists=LISTS)
case("made the day before", ["good-yesterday"], True, True, sent=False, lists=LISTS,
     reason="a peer chooses among the answers that it ever had, so that those that it sends count for a day")
case("too early", ["early"], False, True, lists=LISTS)
case("clocks differ by two minutes", ["skewed"], True, True, lists=LISTS)
case("no next update", ["no-end"], True, True, lists=LISTS)
case("no next update, and a quarter of an hour old", ["no-end-old"], False, True, lists=LISTS)
case("about another certificate", ["about-other"], False, True, lists=LISTS)
case("the CRL lists it, the answer is good", ["good"], False, False, lists=[*LISTS, "lists"], says="was revoked")
case("the answer revokes it, the CRL does not list it", ["lists"], False, False, lists=[*LISTS, "ca"], says="was revoked")
case("an unknown answer leaves it to the CRL", ["unknown"], True, True, lists=[*LISTS, "ca"])
case("nothing about the authority", ["good"], False, True, says="there is no CRL of \"O=Example, CN=root\"")
case("delegated", ["delegated"], True, True, lists=LISTS)
case("delegated, revokes", ["delegated-lists"], False, False, lists=LISTS, says="was revoked")
case("delegated, without its certificate", ["delegated-bare"], False, True, lists=LISTS)
case("the delegate has expired", ["expired"], False, True, lists=LISTS)
case("the delegate was revoked", ["by-revoked"], True, True, lists=[*LISTS, "delegates"],
     reason="OpenSSL does not look at the delegate's status; here the CRL decides")
case("a server's certificate signs", ["server"], False, True, lists=LISTS)
case("a stranger signs", ["stranger"], False, True, lists=LISTS)
case("a stranger revokes", ["stranger-lists"], False, True, lists=LISTS)
case("a stranger that the configuration trusts", ["stranger"], True, True, lists=LISTS, trusts=True)
case("a trusted stranger revokes", ["stranger-lists"], False, False, lists=LISTS, trusts=True, says="was revoked")
case("a responder of the authority above", ["above"], False, True, lists=LISTS)
case("it speaks for itself", ["itself"], False, True, lists=LISTS)
case("forged", ["forged"], False, True, lists=LISTS)
case("a stranger's newer answer changes nothing", ["stranger", "lists"], False, False, lists=LISTS, says="was revoked")

# What a peer can make itself: authorities of the issuer's name, and answers that name responders of that name.
flood = {"certificates": [], "answers": []}
MADE = {"subject_name": name("ca"), "issuer_name": name("ca")}


def made_up(purpose=None):
    own = ec.generate_private_key(ec.SECP256R1())
    builder = (x509.CertificateBuilder(**MADE, public_key=own.public_key(), serial_number=x509.random_serial_number())
               .not_valid_before(TIME - DAY).not_valid_after(TIME + 365 * DAY))
    extension = x509.ExtendedKeyUsage([purpose]) if purpose else x509.BasicConstraints(True, None)
    return own, builder.add_extension(extension, not purpose).sign(own, hashes.SHA256())


for at in range(29):
    flood["certificates"].append(made_up()[1].public_bytes(DER))
for at in range(8):
    own, responder = made_up(ExtendedKeyUsageOID.OCSP_SIGNING)
    builder = ocsp.OCSPResponseBuilder().add_response(certificates["leaf"], certificates["ca"], hashes.SHA1(), GOOD,
                                                      TIME + at * MINUTE / 8, TIME + 3 * DAY, None, None)
    builder = builder.responder_id(ocsp.OCSPResponderEncoding.NAME, responder)
    builder = builder.certificates([responder, made_up(ExtendedKeyUsageOID.OCSP_SIGNING)[1]])
    flood["answers"].append(builder.sign(own, hashes.SHA256()).public_bytes(DER))

lines = ["{", ' "source": "vectors/generate_ocsp.py (cryptography, verdicts of OpenSSL 3.0)",', f' "now": {NOW},']
encoded = {label: one.public_bytes(DER) for label, one in certificates.items()}
request = ocsp.OCSPRequestBuilder().add_certificate(certificates["leaf"], certificates["ca"], hashes.SHA1()).build()
for kind, things in (("certificates", encoded), ("answers", answers), ("crls", crls),
                     ("requests", {"leaf": request.public_bytes(DER)})):
    texts = (f'  {json.dumps(label)}: "{base64.b64encode(thing).decode()}"' for label, thing in things.items())
    lines += [f' "{kind}": {{', ",\n".join(texts), " },"]
floods = (f'  {json.dumps(kind)}: {json.dumps([base64.b64encode(der).decode() for der in things])}' for kind, things in flood.items())
lines += [' "flood": {', ",\n".join(floods), " },"]
secret = keys["leaf"].private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
lines += [f' "leaf_key": {json.dumps(secret.decode())},', ' "cases": [', ",\n".join(f"  {json.dumps(one)}" for one in cases), " ]", "}"]
OUT.write_text("\n".join(lines) + "\n")
print(len(cases))
