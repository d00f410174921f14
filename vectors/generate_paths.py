#!/usr/bin/env python3
"""Writes vectors/paths: certification paths and whether they are valid.

  generate_paths.py              openssl.json, new random keys; the verdicts are those of `openssl verify -policy anyPolicy`
  generate_paths.py hashes       hashes.json, new random keys: RSA signatures with each hash, and OpenSSL's verdicts
  generate_paths.py crls FOLDER  pkits-crls.json, from NIST's PKITS (FOLDER has certs/*.crt and crls/*.crl): the tests that are
                                 about CRLs, with a CRL demanded of every certificate
  generate_paths.py pkits FOLDER pkits.json, from NIST's PKITS (2048 bits; FOLDER has certs/*.crt): its expected results, where
                                 they do not come from CRLs or DSA, and OpenSSL says the same

A verdict of ours that differs on purpose has a `reason`.
"""

import base64
import datetime
import ipaddress
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID, ObjectIdentifier

ANY_POLICY = "2.5.29.32.0"
OUT = pathlib.Path(__file__).parent / "paths"
# 2026-06-01.
NOW = 1_780_272_000
DAY = datetime.timedelta(days=1)
TIME = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


def openssl(folder, chain, root):
    """OpenSSL's verdict on a path, the end entity first."""
    def pem(name, ders):
        path = pathlib.Path(folder) / name
        path.write_bytes(b"".join(x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
                                  for der in ders))
        return path
    command = ["openssl", "verify", "-policy", ANY_POLICY, "-attime", str(NOW), "-no-CAfile", "-no-CApath", "-no-CAstore",
               "-CAfile", pem("root", [root])]
    if chain[1:]:
        command += ["-untrusted", pem("untrusted", chain[1:])]
    result = subprocess.run([*command, pem("peer", chain[:1])], capture_output=True, text=True)
    reason = re.search(r"error \d+ at \d+ depth lookup: (.*)", result.stderr + result.stdout)
    return result.returncode == 0, reason and reason[1]


def write(name, source, certificates, cases, crls=None):
    lines = ['{', f' "source": {json.dumps(source)},', f' "now": {NOW},', ' "certificates": {']
    lines += [",\n".join(f'  {json.dumps(key)}: "{base64.b64encode(der).decode()}"'
                         for key, der in certificates.items()), ' },']
    if crls is not None:
        lines += [' "crls": {', ",\n".join(f'  {json.dumps(key)}: "{base64.b64encode(der).decode()}"'
                                           for key, der in crls.items()), ' },']
    lines += [' "cases": [']
    lines += [",\n".join(f"  {json.dumps(case)}" for case in cases), ' ]', '}']
    OUT.mkdir(exist_ok=True)
    (OUT / name).write_text("\n".join(lines) + "\n")


# --- OpenSSL's verdicts ---------------------------------------------------------------------------

POLICIES = ["1.3.6.1.4.1.32473.1", "1.3.6.1.4.1.32473.2", "1.3.6.1.4.1.32473.3"]
USAGES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
          "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")


def name(common, organisation="Good", unit=None):
    attributes = [x509.NameAttribute(NameOID.COUNTRY_NAME, "CH"),
                  x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation)]
    if unit:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def directory(*attributes):
    oids = {"C": NameOID.COUNTRY_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
    return x509.DirectoryName(x509.Name([x509.NameAttribute(oids[key], value) for key, value in attributes]))


class Maker:
    def __init__(self):
        self.certificates, self.cases, self.keys = {}, [], {}
        self.folder = tempfile.mkdtemp()

    def key(self, label):
        return self.keys.setdefault(label, ec.generate_private_key(ec.SECP256R1()))

    def make(self, label, issuer, *, subject=None, key=None, ca=True, length=None, usage=None, start=-1, end=365,
             names=(), permitted=None, excluded=None, policies=None, mappings=None, explicit=None, no_mapping=None,
             no_any=None, unknown=None, purposes=None, signer=None):
        """`issuer` is (name, key label), or None for a certificate that signs itself."""
        subject, key = subject or name(label), key or label
        issuer = issuer or (subject, key)
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0])
                   .public_key(self.key(key).public_key()).serial_number(len(self.certificates) + 1)
                   .not_valid_before(TIME + start * DAY).not_valid_after(TIME + end * DAY))
        add = lambda extension, critical: builder.add_extension(extension, critical)
        # Without them OpenSSL takes what names itself as its issuer for self-signed.
        public = self.key(issuer[1]).public_key()
        builder = add(x509.SubjectKeyIdentifier.from_public_key(self.key(key).public_key()), False)
        builder = add(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False)
        if ca is not None:
            builder = add(x509.BasicConstraints(ca, length if ca else None), True)
        if usage:
            builder = add(x509.KeyUsage(**{bit: bit in usage for bit in USAGES}), True)
        if names:
            builder = add(x509.SubjectAlternativeName(names), False)
        if permitted or excluded:
            builder = add(x509.NameConstraints(permitted, excluded), True)
        if policies:
            builder = add(x509.CertificatePolicies([x509.PolicyInformation(ObjectIdentifier(p), None)
                                                    for p in policies]), False)
        if mappings:
            pairs = b"".join(sequence(oid(a) + oid(b)) for a, b in mappings)
            builder = add(x509.UnrecognizedExtension(ObjectIdentifier("2.5.29.33"), sequence(pairs)), True)
        if explicit is not None or no_mapping is not None:
            builder = add(x509.PolicyConstraints(explicit, no_mapping), True)
        if no_any is not None:
            builder = add(x509.InhibitAnyPolicy(no_any), True)
        if purposes:
            builder = add(x509.ExtendedKeyUsage([ObjectIdentifier(p) for p in purposes]), False)
        if unknown is not None:
            builder = add(x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.32473.9"), b"\x05\0"), unknown)
        made = builder.sign(self.key(signer or issuer[1]), hashes.SHA256())
        self.certificates[label] = made.public_bytes(serialization.Encoding.DER)
        return subject, key

    def case(self, title, chain, root, valid=None, reason=None):
        ders = [self.certificates[label] for label in chain]
        verdict, why = openssl(self.folder, ders, self.certificates[root])
        case = {"name": title, "chain": chain, "root": root, "openssl": verdict}
        if why:
            case["openssl_says"] = why
        if valid is not None and valid != verdict:
            case |= {"valid": valid, "reason": reason}
        self.cases.append(case)


def sequence(content):
    length = len(content)
    head = bytes([length]) if length < 128 else bytes([0x81, length])
    return b"\x30" + head + content


def oid(text):
    arcs = [int(arc) for arc in text.split(".")]
    content = bytes([arcs[0] * 40 + arcs[1]])
    for arc in arcs[2:]:
        septets = [arc & 127]
        while arc := arc >> 7:
            septets.append(arc & 127 | 128)
        content += bytes(reversed(septets))
    return bytes([6, len(content)]) + content


def singles(maker):
    """One thing at a time."""
    dns, mail, uri = x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier
    ip = lambda text: x509.IPAddress(ipaddress.ip_address(text))
    net = lambda text: x509.IPAddress(ipaddress.ip_network(text))
    good = directory(("C", "CH"), ("O", "Good"))
    numbers = itertools.count()

    def one(title, *, root=None, between=({},), leaf=None, **expected):
        number = next(numbers)
        label = f"{number}-root"
        issuer = maker.make(label, None, subject=name(f"Root {number}"), **(root or {}))
        chain = []
        for depth, options in enumerate(between):
            own = f"{number}-{depth}"
            issuer = maker.make(own, issuer, **({"subject": name(f"CA {number} {depth}")} | options))
            chain.insert(0, own)
        leaf_label = f"{number}-peer"
        maker.make(leaf_label, issuer, **({"ca": None, "subject": name("peer"), "key": "peer"} | (leaf or {})))
        maker.case(title, [leaf_label, *chain], label, **expected)

    sign, other = ["key_cert_sign", "crl_sign"], ["digital_signature"]
    one("plain")
    one("no intermediate", between=())
    one("four intermediates", between=[{}] * 4)
    one("intermediate with keyCertSign", between=[{"usage": sign}])
    one("intermediate without keyCertSign", between=[{"usage": other}])
    one("root without keyCertSign", root={"usage": other})
    one("root with keyCertSign", root={"usage": sign})
    one("intermediate is no authority", between=[{"ca": False}])
    one("intermediate without basicConstraints", between=[{"ca": None}])
    one("intermediate without basicConstraints, with keyCertSign", between=[{"ca": None, "usage": sign}], valid=False,
        reason="RFC 5280 section 6.1.4 (k)")
    for who in ("root", "intermediate", "leaf"):
        where = lambda options: {"between": [options]} if who == "intermediate" else {who: options}
        one(f"{who} expired", **where({"start": -9, "end": -1}))
        one(f"{who} not yet valid", **where({"start": 1}))
        one(f"{who} with an unknown extension", **where({"unknown": False}))
        one(f"{who} with an unknown critical extension", **where({"unknown": True}))
        one(f"{who} signed by a stranger", **where({"signer": "stranger"}),
            **({"valid": True, "reason": "nothing relies on a root's own signature, nor does OpenSSL with -partial_chain"}
               if who == "root" else {}))
    for length, count in itertools.product((0, 1, 2), (0, 1, 2)):
        one(f"root's pathLen {length}, {count} intermediates", root={"length": length}, between=[{}] * count)
    one("intermediate's pathLen 0, one more", between=[{"length": 0}, {}])
    one("intermediate's pathLen 1, one more", between=[{"length": 1}, {}])
    one("self-issued intermediates do not count", root={"length": 1},
        between=[{"subject": name("Same")}, {"subject": name("Same"), "length": 0}])
    one("self-issued intermediate, then another", root={"length": 1},
        between=[{"subject": name("Same")}, {"subject": name("Same")}, {}])
    for place in ("root", "intermediate"):
        def nc(title, leaf, permitted=None, excluded=None, **expected):
            options = {"permitted": permitted, "excluded": excluded}
            where = {"root": options} if place == "root" else {"between": [options]}
            one(f"{place}: {title}", **where, leaf=leaf, **expected)
        nc("permitted directoryName", {}, [good])
        nc("permitted directoryName in other case", {}, [directory(("C", "ch"), ("O", "  gOOD "))])
        nc("permitted directoryName of another", {"subject": name("peer", "Evil")}, [good])
        nc("permitted directoryName longer than the subject", {}, [directory(("C", "CH"), ("O", "Good"), ("OU", "Unit"))])
        nc("one of two permitted directoryNames", {"subject": name("peer", "Evil")},
           [good, directory(("C", "CH"), ("O", "Evil"))])
        nc("excluded directoryName", {"subject": name("peer", unit="Bad")}, None,
           [directory(("C", "CH"), ("O", "Good"), ("OU", "Bad"))])
        nc("excluded directoryName of another", {}, None, [directory(("C", "CH"), ("O", "Evil"))])
        nc("directoryName among alternative names", {"names": [directory(("C", "CH"), ("O", "Evil"))]}, [good])
        for text in ("good.example", "a.good.example", "agood.example", "b.a.GOOD.example", "evil.example"):
            nc(f"permitted dNSName, {text}", {"names": [dns(text)]}, [dns("good.example")])
            nc(f"excluded dNSName, {text}", {"names": [dns(text)]}, None, [dns("good.example")])
        nc("permitted dNSName, none in the leaf", {}, [dns("good.example")])
        for text in ("a@good.example", "b@good.example", "a@x.good.example", "a@evil.example"):
            for base in ("a@good.example", "good.example", ".good.example"):
                nc(f"permitted rfc822Name {base}, {text}", {"names": [mail(text)]}, [mail(base)])
        nc("excluded rfc822Name", {"names": [mail("a@good.example")]}, None, [mail("good.example")])
        for text in ("http://good.example/x", "https://u@good.example:8/", "http://x.good.example", "http://evil.example",
                     "http://192.0.2.1/", "urn:good.example"):
            for base in ("good.example", ".good.example"):
                user = "u@" in text and base == "good.example"
                nc(f"permitted URI {base}, {text}", {"names": [uri(text)]}, [uri(base)],
                   **({"valid": True, "reason": "OpenSSL takes the user for a part of the host"} if user else {}))
        for text in ("192.0.2.1", "192.0.3.1", "2001:db8::1"):
            nc(f"permitted iPAddress, {text}", {"names": [ip(text)]}, [net("192.0.2.0/24")])
            nc(f"excluded iPAddress, {text}", {"names": [ip(text)]}, None, [net("192.0.2.0/24")])
        nc("permitted registeredID", {"names": [x509.RegisteredID(ObjectIdentifier("1.3.6.1.4.1.32473.7"))]},
           [x509.RegisteredID(ObjectIdentifier("1.3.6.1.4.1.32473.7"))])
        nc("several kinds", {"names": [dns("a.good.example"), ip("192.0.2.9")]},
           [good, dns("good.example"), net("192.0.2.0/24")])
    one("both authorities' constraints hold", root={"permitted": [dns("example")]},
        between=[{"permitted": [dns("good.example")]}], leaf={"names": [dns("a.good.example")]})
    one("the root's constraint is not widened", root={"permitted": [dns("good.example")]},
        between=[{"permitted": [dns("example")]}], leaf={"names": [dns("a.example")]})
    one("a constraint on an intermediate's name", root={"permitted": [directory(("C", "CH"), ("O", "Good"))]},
        between=[{"subject": name("CA", "Evil")}])


def mixtures(maker):
    """Random paths: pools of roots and intermediates, a leaf each."""
    rng = random.Random(5280)
    pick = lambda *choices: rng.choice(choices)

    def policy_options(authority):
        options = {}
        if rng.random() < 0.8:
            options["policies"] = rng.sample([*POLICIES, ANY_POLICY], pick(1, 1, 2, 3))
        if authority and rng.random() < 0.35:
            options["mappings"] = [tuple(rng.sample(POLICIES, 2)) for _ in range(pick(1, 1, 2))]
        if authority and rng.random() < 0.5:
            options |= {"explicit": pick(None, 0, 0, 1, 2), "no_mapping": pick(None, None, 0, 1)}
        if authority and rng.random() < 0.2:
            options["no_any"] = pick(0, 1)
        return options

    constraints = [None, None, None, None, None, [directory(("C", "CH"), ("O", "Good"))], [x509.DNSName("good.example")],
                   [directory(("C", "CH"))], [directory(("C", "CH"), ("O", "Evil"))]]
    for number in range(160):
        root = f"m{number}-root"
        issuer = maker.make(root, None, subject=name(f"Mixed root {number}"), length=pick(None, None, None, 2))
        chain = []
        for depth in range(pick(1, 2, 2, 3)):
            label = f"m{number}-{depth}"
            subject = issuer[0] if rng.random() < 0.15 else name(f"Mixed {number} {depth}", pick(*["Good"] * 5, "Evil"))
            options = policy_options(True)
            issuer = maker.make(label, issuer, subject=subject, key=f"mixed-{depth}", length=pick(None, None, None, None, 1),
                                usage=pick(None, ["key_cert_sign"], ["key_cert_sign"]),
                                **{pick(*["permitted"] * 4, "excluded"): rng.choice(constraints)}, **options)
            chain.insert(0, label)
        leaf = f"m{number}-peer"
        maker.make(leaf, issuer, subject=name("peer", pick(*["Good"] * 4, "Evil")), key="peer", ca=None,
                   names=[x509.DNSName(pick(*["a.good.example"] * 3, "evil.example"))], **policy_options(False))
        maker.case(f"mixture {number}", [leaf, *chain], root)


def loops(maker):
    """Authorities that certify each other. They lead nowhere, or past the loop to a root."""
    for size in (1, 2, 3):
        subjects = [(name(f"Loop {size} {at}"), f"loop-{size}-{at}") for at in range(size)]
        links = []
        for at, (subject, key) in enumerate(subjects):
            links.append(key)
            maker.make(key, subjects[(at + 1) % size], subject=subject, key=key)
        peer, root, out = f"loop-{size}-peer", f"loop-{size}-root", f"loop-{size}-out"
        maker.make(peer, subjects[0], ca=None, subject=name("peer"), key="peer")
        issuer = maker.make(root, None, subject=name(f"Root of loop {size}"))
        maker.case(f"loop of {size}", [peer, *links], root)
        maker.make(out, issuer, subject=subjects[-1][0], key=subjects[-1][1])
        maker.case(f"loop of {size}, and a way out", [peer, *links, out], root, valid=True,
                   reason="OpenSSL follows one issuer of several that fit")


def from_openssl():
    maker = Maker()
    singles(maker)
    mixtures(maker)
    loops(maker)
    version = subprocess.run(["openssl", "version"], capture_output=True, text=True).stdout.split(" (")[0].strip()
    write("openssl.json", f"vectors/generate_paths.py (cryptography, verdicts of {version})", maker.certificates, maker.cases)


def from_hashes():
    """A root, and a certificate for each hash: as it is, and with the content of another."""
    maker = Maker()
    root = maker.keys["root"] = rsa.generate_private_key(65537, 2048)
    maker.make("root", None)
    builder = (x509.CertificateBuilder().subject_name(name("peer")).issuer_name(name("root"))
               .public_key(maker.key("peer").public_key()).not_valid_before(TIME - DAY).not_valid_after(TIME + 365 * DAY))
    for at, one in enumerate((hashes.SHA224, hashes.SHA256, hashes.SHA384, hashes.SHA512, hashes.SHA3_256, hashes.SHA3_384,
                              hashes.SHA3_512)):
        ders = [builder.serial_number(100 + at).sign(root, one()).public_bytes(serialization.Encoding.DER)
                for at in (at, at + 50)]
        end = -root.key_size // 8
        for label, der in ((one.name, ders[0]), (f"{one.name} over something else", ders[0][:end] + ders[1][end:])):
            maker.certificates[label] = der
            maker.case(label, [label], "root")
    write("hashes.json", "vectors/generate_paths.py hashes (cryptography, verdicts of OpenSSL)", maker.certificates, maker.cases)


# --- PKITS ----------------------------------------------------------------------------------------

# What CRLs decide, and DSA.
LEFT_OUT = re.compile(r"CRL|Revoked|istributionPoint|delta|onlySome|onlyContains|IDP|Invalid(Long|Negative)Serial|"
                      r"InvalidBasicSelfIssued|DSA|cRL")


DIFFERENT = {"Validpre2000UTCnotBeforeDateTest3EE": "x509-cert has no dates before 1970"}


INDIRECT = "indirect CRLs of other issuers are not used"
DIFFERENT_CRLS = {f"Valid{test}": INDIRECT for test in (
    "IDPwithindirectCRLTest24", "IDPwithindirectCRLTest25", "cRLIssuerTest28", "cRLIssuerTest29", "cRLIssuerTest30",
    "cRLIssuerTest33")}


def folded(name):
    return [(a.oid.dotted_string, " ".join(str(a.value).split()).lower()) for a in name]


def from_pkits(folder):
    found = {path.stem: path.read_bytes() for path in sorted(pathlib.Path(folder, "certs").glob("*.crt"))}
    parsed = {}
    for label, der in found.items():
        try:
            certificate = x509.load_der_x509_certificate(der)
            parsed[label] = folded(certificate.subject), folded(certificate.issuer)
        except ValueError as error:
            print("not read:", label, error)
    root = next(label for label in found if label.startswith("TrustAnchorRoot"))
    cases, used = [], {root}
    temporary = tempfile.mkdtemp()
    for label in found:
        if not re.search(r"Test\d+(EE)?$", label) or LEFT_OUT.search(label) or label not in parsed:
            continue
        chain = [label]
        for member in chain:
            issuers = [other for other, (subject, _) in parsed.items() if subject == parsed[member][1]]
            chain += [other for other in issuers if other not in chain and other != root
                      and not re.search(r"Test\d+EE$", other)]
        used |= set(chain)
        verdict, why = openssl(temporary, [found[member] for member in chain], found[root])
        expected = {"Valid": True, "Inval": False}.get(label[:5], verdict)
        if expected != verdict:
            print("OpenSSL and NIST disagree:", label, why)
            continue
        cases.append({"name": label.removesuffix("EE"), "chain": chain, "root": root, "openssl": verdict}
                     | ({"openssl_says": why} if why else {})
                     | ({"valid": not verdict, "reason": DIFFERENT[label]} if label in DIFFERENT else {}))
    write("pkits.json", "NIST PKITS (csrc.nist.gov/projects/pki-testing), verdicts as published and of openssl verify",
          {label: found[label] for label in sorted(used)}, cases)


def from_pkits_crls(folder):
    """The chain has every certificate that can help, and the CRLs are all of their issuers."""
    found = {path.stem: path.read_bytes() for path in sorted(pathlib.Path(folder, "certs").glob("*.crt"))}
    lists = {path.stem: path.read_bytes() for path in sorted(pathlib.Path(folder, "crls").glob("*.crl"))}
    subjects, issuers, of_list = {}, {}, {}
    for label, der in found.items():
        try:
            certificate = x509.load_der_x509_certificate(der)
            subjects[label], issuers[label] = folded(certificate.subject), folded(certificate.issuer)
        except ValueError as error:
            print("not read:", label, error)
    for label, der in lists.items():
        try:
            of_list[label] = folded(x509.load_der_x509_crl(der).issuer)
        except ValueError as error:
            print("not read:", label, error)
    root = next(label for label in found if label.startswith("TrustAnchorRoot"))
    cases, used, used_lists = [], {root}, set()
    for label in subjects:
        if (not re.search(r"Test\d+(EE)?$", label) or not LEFT_OUT.search(label) or "DSA" in label
                or label[:5] not in ("Valid", "Inval")):
            continue
        chain = [label]
        for member in chain:
            chain += [other for other, subject in subjects.items() if subject == issuers[member]
                      and other not in chain and other != root and not re.search(r"Test\d+EE$", other)]
        crls = [crl for crl, issuer in of_list.items() if issuer in [issuers[member] for member in chain]]
        used |= set(chain)
        used_lists |= set(crls)
        valid = label.startswith("Valid")
        case = {"name": label.removesuffix("EE"), "chain": chain, "root": root, "crls": crls, "nist": valid}
        if case["name"] in DIFFERENT_CRLS:
            case |= {"valid": not valid, "reason": DIFFERENT_CRLS[case["name"]]}
        cases.append(case)
    write("pkits-crls.json", "NIST PKITS (csrc.nist.gov/projects/pki-testing), verdicts as published",
          {label: found[label] for label in sorted(used)}, cases, {label: lists[label] for label in sorted(used_lists)})


if sys.argv[1:2] == ["pkits"]:
    from_pkits(sys.argv[2])
elif sys.argv[1:2] == ["hashes"]:
    from_hashes()
elif sys.argv[1:2] == ["crls"]:
    from_pkits_crls(sys.argv[2])
else:
    from_openssl()
