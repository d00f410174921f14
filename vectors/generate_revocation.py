#!/usr/bin/env python3
"""Writes vectors/paths/revocation.json: a path, CRLs for it, and what follows under each policy.

OpenSSL's verdict is that of `openssl verify -crl_check_all -extended_crl -use_deltas`, which demands a CRL of every
certificate, as `strict` does. Where ours differs on purpose there is a `reason`.
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
from cryptography.x509.oid import NameOID, ObjectIdentifier

OUT = pathlib.Path(__file__).parent / "paths" / "revocation.json"
# 2026-06-01.
NOW = 1_780_272_000
HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)
TIME = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
USAGES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
          "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
URI = "http://crl.example.org/ca.crl"

keys, certificates, crls, cases = {}, {}, {}, []


def key(label):
    return keys.setdefault(label, ec.generate_private_key(ec.SECP256R1()))


def name(common):
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
                      x509.NameAttribute(NameOID.COMMON_NAME, common)])


def certificate(label, subject, issuer, serial, *, ca=True, usage=("key_cert_sign", "crl_sign"), points=None, ocsp=False,
                signer=None, subject_key=None):
    builder = (x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer)).serial_number(serial)
               .public_key(key(subject_key or subject).public_key())
               .not_valid_before(TIME - 365 * DAY).not_valid_after(TIME + 365 * DAY)
               .add_extension(x509.BasicConstraints(ca, None), True)
               .add_extension(x509.SubjectKeyIdentifier.from_public_key(key(subject_key or subject).public_key()), False)
               .add_extension(x509.KeyUsage(**{bit: bit in usage for bit in USAGES}), True))
    if not ca:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("moon.example.org")]), False)
    if points:
        builder = builder.add_extension(x509.CRLDistributionPoints(points), False)
    if ocsp:
        access = x509.AccessDescription(x509.oid.AuthorityInformationAccessOID.OCSP,
                                        x509.UniformResourceIdentifier("http://ocsp.example.org/"))
        builder = builder.add_extension(x509.AuthorityInformationAccess([access]), False)
    certificates[label] = builder.sign(key(signer or issuer), hashes.SHA256())


def point(uri=URI, reasons=None):
    return x509.DistributionPoint([x509.UniformResourceIdentifier(uri)], None, reasons and frozenset(reasons), None)


def crl(label, issuer, *, revoked=(), number=5, start=-HOUR, end=7 * DAY, base=None, idp=None, unknown=None, entry=None,
        signer=None, padding=0):
    builder = x509.CertificateRevocationListBuilder().issuer_name(name(issuer))
    builder = builder.last_update(TIME + start).next_update(TIME + end)
    for serial, reason in [*revoked, *((1000 + i, None) for i in range(padding))]:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(TIME - 2 * DAY)
        if reason:
            one = one.add_extension(x509.CRLReason(reason), False)
        if entry:
            one = one.add_extension(x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.32473.9"), b"\x05\0"), True)
        builder = builder.add_revoked_certificate(one.build())
    public = key(signer or issuer).public_key()
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False)
    if number is not None:
        builder = builder.add_extension(x509.CRLNumber(number), False)
    if base is not None:
        builder = builder.add_extension(x509.DeltaCRLIndicator(base), True)
    else:
        # Without it OpenSSL looks for no delta.
        builder = builder.add_extension(x509.FreshestCRL([point("http://crl.example.org/delta.crl")]), False)
    if idp:
        builder = builder.add_extension(x509.IssuingDistributionPoint(**{
            "full_name": None, "relative_name": None, "only_contains_user_certs": False, "only_contains_ca_certs": False,
            "only_some_reasons": None, "indirect_crl": False, "only_contains_attribute_certs": False} | idp), True)
    if unknown is not None:
        builder = builder.add_extension(x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.32473.9"), b"\x05\0"), unknown)
    crls[label] = builder.sign(key(signer or issuer), hashes.SHA256())


def openssl(chain, lists):
    with tempfile.TemporaryDirectory() as folder:
        def pem(file, things):
            path = pathlib.Path(folder) / file
            path.write_bytes(b"".join(thing.public_bytes(serialization.Encoding.PEM) for thing in things))
            return str(path)
        command = ["openssl", "verify", "-attime", str(NOW), "-no-CAfile", "-no-CApath", "-no-CAstore", "-crl_check_all",
                   "-extended_crl", "-use_deltas", "-CAfile", pem("root", [certificates["root"]]),
                   "-untrusted", pem("untrusted", [certificates[one] for one in chain[1:]])]
        if lists:
            command += ["-CRLfile", pem("lists", [crls[one] for one in lists])]
        result = subprocess.run([*command, pem("peer", [certificates[chain[0]]])], capture_output=True, text=True)
        return result.returncode == 0


def case(title, lists, strict, ifuri, relaxed, *, says=None, leaf="leaf", chain=None, expects=(), reason=None):
    """`expects`: authorities for which the configuration has a URI. `says`: part of the refusal under `strict`."""
    chain = chain or [leaf, "ca"]
    one = {"name": title, "chain": chain, "crls": lists, "strict": strict, "ifuri": ifuri, "relaxed": relaxed,
           "openssl": openssl(chain, lists)}
    if says:
        one["says"] = says
    if expects:
        one["expects"] = list(expects)
    if one["openssl"] != strict:
        assert reason, (title, one)
        one["reason"] = reason
    cases.append(one)


LEAF, CA = 0x1234, 0x22
certificate("root", "root", "root", 1)
certificate("ca", "ca", "root", CA)
certificate("leaf", "leaf", "ca", LEAF, ca=False, usage=("digital_signature",))
certificate("leaf-crl", "leaf", "ca", LEAF, ca=False, usage=("digital_signature",), points=[point()])
certificate("leaf-ocsp", "leaf", "ca", LEAF, ca=False, usage=("digital_signature",), ocsp=True)
certificate("leaf-reasons", "leaf", "ca", LEAF, ca=False, usage=("digital_signature",),
            points=[point(reasons=[x509.ReasonFlags.key_compromise, x509.ReasonFlags.ca_compromise])])
# The same authority, not allowed to sign CRLs.
certificate("ca-no-crl", "ca", "root", CA, usage=("key_cert_sign",))
# Another key of the authority, for its CRLs.
certificate("ca-signer", "ca", "root", 0x23, usage=("crl_sign",), subject_key="signer", ca=False)

# Another authority with the same name.
certificate("ca-twin", "ca", "ca", 0x24, subject_key="twin", signer="twin")

KEY = x509.ReasonFlags.key_compromise
HOLD = x509.ReasonFlags.certificate_hold
REMOVE = x509.ReasonFlags.remove_from_crl
USERS, AUTHORITIES = {"only_contains_user_certs": True}, {"only_contains_ca_certs": True}

crl("root", "root")
crl("root-lists-ca", "root", revoked=[(CA, None)])
crl("empty", "ca")
crl("others", "ca", padding=200)
crl("lists", "ca", revoked=[(LEAF, KEY)], padding=200)
crl("hold", "ca", revoked=[(LEAF, HOLD)])
crl("stale", "ca", start=-9 * DAY, end=-HOUR)
crl("stale-lists", "ca", revoked=[(LEAF, KEY)], start=-9 * DAY, end=-HOUR)
crl("early", "ca", start=HOUR)
crl("early-lists", "ca", revoked=[(LEAF, None)], start=HOUR)
crl("newer", "ca", number=6)
crl("older-lists", "ca", revoked=[(LEAF, HOLD)], number=4, start=-2 * HOUR)
crl("forged", "ca", signer="root")
crl("forged-lists", "ca", revoked=[(LEAF, None)], signer="root", number=9)
crl("critical", "ca", unknown=True)
crl("critical-lists", "ca", revoked=[(LEAF, None)], unknown=True)
crl("unknown", "ca", unknown=False)
crl("critical-entry", "ca", revoked=[(7, None)], entry=True)
crl("users", "ca", idp=USERS)
crl("authorities", "ca", idp=AUTHORITIES)
crl("attributes", "ca", idp={"only_contains_attribute_certs": True})
crl("point", "ca", idp={"full_name": [x509.UniformResourceIdentifier(URI)]})
crl("other-point", "ca", idp={"full_name": [x509.UniformResourceIdentifier(URI + "2")]})
some = frozenset([x509.ReasonFlags.key_compromise, x509.ReasonFlags.ca_compromise])
rest = frozenset([flag for flag in x509.ReasonFlags
                  if flag not in some | {x509.ReasonFlags.unspecified, x509.ReasonFlags.remove_from_crl}])
crl("some", "ca", idp={"only_some_reasons": some})
crl("rest", "ca", idp={"only_some_reasons": rest})
crl("delta", "ca", number=7, base=5)
crl("delta-lists", "ca", revoked=[(LEAF, KEY)], number=7, base=5)
crl("delta-removes", "ca", revoked=[(LEAF, REMOVE)], number=7, base=5)
crl("twice", "ca", revoked=[(LEAF, HOLD), (LEAF, KEY)])
crl("delta-removes-stale", "ca", revoked=[(LEAF, REMOVE)], number=7, base=5, start=-2 * DAY, end=-HOUR)
crl("delta-far", "ca", number=9, base=8)
crl("delta-far-lists", "ca", revoked=[(LEAF, None)], number=9, base=8)
crl("delta-far-removes", "ca", revoked=[(LEAF, REMOVE)], number=9, base=8)
crl("newest", "ca", number=8)
crl("by-signer", "ca", signer="signer")
crl("by-signer-lists", "ca", revoked=[(LEAF, None)], signer="signer")
crl("by-twin", "ca", signer="twin")
crl("by-twin-lists", "ca", revoked=[(LEAF, None)], signer="twin")

ENDS_HOLDS = "RFC 5280 section 5.3.1: a removal ends a hold, or says that the certificate has expired"
case("no CRL", [], False, True, True, says="there is no CRL")
case("no CRL, but a URI of one", [], False, False, True, leaf="leaf-crl")
case("no CRL, but a URI of a responder", [], False, False, True, leaf="leaf-ocsp")
case("no CRL, but a URI in the configuration", [], False, False, True, expects=["ca"])
case("a URI for the root only", ["empty"], False, False, True, expects=["root"])
case("good", ["root", "empty"], True, True, True)
case("good among others", ["root", "others"], True, True, True)
case("no CRL of the root", ["empty"], False, True, True, says="there is no CRL of \"O=Example, CN=root\"")
case("leaf revoked", ["root", "lists"], False, False, False, says="was revoked at 2026-05-30T00:00:00Z: keyCompromise")
case("leaf revoked, no CRL of the root", ["lists"], False, False, False, says="was revoked")
case("leaf on hold", ["root", "hold"], False, False, False, says="certificateHold")
case("authority revoked", ["root-lists-ca", "empty"], False, False, False, says="CN=ca\" (serial number 22) was revoked")
case("stale", ["root", "stale"], False, False, True, says="is not current (next update 2026-05-31T23:00:00Z)")
case("stale, and lists the leaf", ["root", "stale-lists"], False, False, False, says="was revoked")
case("too early", ["root", "early"], False, False, True, says="is not current")
case("too early, and lists the leaf", ["root", "early-lists"], False, False, False, says="was revoked")
case("the newest counts", ["root", "older-lists", "newer"], True, True, True)
case("the newest counts, in any order", ["root", "newer", "older-lists"], True, True, True)
case("signed by another", ["root", "forged"], False, False, True, says="no CRL of \"O=Example, CN=ca\" has a signature")
case("signed by another, lists the leaf", ["root", "forged-lists"], False, False, True, says="has a signature")
case("a newer one of a stranger changes nothing", ["root", "lists", "forged"], False, False, False, says="was revoked")
case("its issuer may not sign CRLs", ["root", "lists"], False, False, True, says="has a signature",
     chain=["leaf", "ca-no-crl"])
case("critical extension", ["root", "critical"], False, False, True, says="1.3.6.1.4.1.32473.9 is critical")
case("critical extension, lists the leaf", ["root", "critical-lists"], False, False, True, says="is critical")
case("unknown extension", ["root", "unknown"], True, True, True)
case("critical extension of an entry", ["root", "critical-entry"], False, False, True, says="of an entry is critical",
     reason="OpenSSL looks at the entry of the certificate only")
case("for users", ["root", "users"], True, True, True)
case("for authorities", ["root", "authorities"], False, False, True, says="no current CRL")
case("for users and for authorities", ["root", "users", "authorities"], True, True, True)
case("for attribute certificates", ["root", "attributes"], False, False, True, says="no current CRL")
case("of the certificate's point", ["root", "point"], True, True, True, leaf="leaf-crl")
case("of another point", ["root", "other-point"], False, False, True, leaf="leaf-crl")
case("of a point, and the certificate has none", ["root", "point"], False, False, True)
case("some reasons", ["root", "some"], False, False, True, says="for all reasons")
case("some reasons and the rest", ["root", "some", "rest"], True, True, True)
case("a point for some reasons", ["root", "point"], False, False, True, leaf="leaf-reasons")
case("delta", ["root", "empty", "delta"], True, True, True)
case("delta lists the leaf", ["root", "empty", "delta-lists"], False, False, False, says="was revoked")
case("delta removes the leaf", ["root", "hold", "delta-removes"], True, True, True)
case("delta removes what is no hold", ["root", "lists", "delta-removes"], False, False, False, says="keyCompromise",
     reason=ENDS_HOLDS)
case("delta removes what is on hold and compromised", ["root", "twice", "delta-removes"], False, False, False,
     says="keyCompromise", reason=ENDS_HOLDS)
case("a stale delta removes nothing", ["root", "hold", "delta-removes-stale"], False, False, False, says="was revoked",
     reason="OpenSSL obeys a delta that has expired; here a removal counts only while the delta is current")
case("a delta of a later base removes nothing", ["root", "hold", "delta-far-removes"], False, False, False, says="was revoked")
case("a delta of a later base", ["root", "empty", "delta-far"], True, True, True)
case("a delta of a later base lists the leaf", ["root", "empty", "delta-far-lists"], False, False, False, says="was revoked",
     reason="what an authority lists is revoked, also if the base of its delta is missing")
case("a delta renews a stale CRL", ["root", "stale", "delta"], True, True, True,
     reason="OpenSSL demands a current base; RFC 5280 §6.3.3 (a) (1) (i) takes the delta")
case("a delta older than the CRL", ["root", "newest", "delta-lists"], True, True, True)
case("only a delta", ["root", "delta"], False, False, True, says="only a delta")
case("another key of the authority signs", ["root", "by-signer"], True, True, True, chain=["leaf", "ca", "ca-signer"])
case("another key of the authority lists the leaf", ["root", "by-signer-lists"], False, False, False,
     chain=["leaf", "ca", "ca-signer"], says="was revoked")
case("another key, without its certificate", ["root", "by-signer-lists"], False, False, True, says="has a signature")

der = serialization.Encoding.DER
lines = ["{", ' "source": "vectors/generate_revocation.py (cryptography, verdicts of OpenSSL 3.0)",', f' "now": {NOW},']
for kind, things in (("certificates", certificates), ("crls", crls)):
    texts = (f'  {json.dumps(label)}: "{base64.b64encode(thing.public_bytes(der)).decode()}"' for label, thing in things.items())
    lines += [f' "{kind}": {{', ",\n".join(texts), " },"]
secret = keys["leaf"].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
lines += [f' "leaf_key": {json.dumps(secret.decode())},', ' "cases": [', ",\n".join(f"  {json.dumps(one)}" for one in cases), " ]", "}"]
OUT.write_text("\n".join(lines) + "\n")
print(len(cases))
