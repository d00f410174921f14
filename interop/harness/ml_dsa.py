"""Makes a chain with ML-DSA keys, which Debian's openssl does not know."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .pki import Identity

DAY = datetime.timedelta(days=1)


def _certificate(name, key, issuer, *, ca):
    above, signing = issuer or (name, key)
    now = datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(_subject(name)).issuer_name(_subject(above))
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY).not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True))
    if not ca:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return made.sign(signing, None).public_bytes(Encoding.PEM)


def _subject(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def chain(folder: Path, names: tuple[str, str]) -> tuple[Path, tuple[Identity, Identity]]:
    """A root with ML-DSA-87, an intermediate with ML-DSA-65, and the certificates of two gateways, with ML-DSA-44 and
    ML-DSA-87, each with the intermediate behind it."""
    root, between = mldsa.MLDSA87PrivateKey.generate(), mldsa.MLDSA65PrivateKey.generate()
    authority = folder / "root.pem"
    authority.write_bytes(_certificate("root", root, None, ca=True))
    intermediate = _certificate("between", between, ("root", root), ca=True)
    identities = []
    for name, kind in zip(names, (mldsa.MLDSA44PrivateKey, mldsa.MLDSA87PrivateKey)):
        key, file, private = kind.generate(), folder / f"{name}.pem", folder / f"{name}.key"
        file.write_bytes(_certificate(name, key, ("between", between), ca=False) + intermediate)
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        identities.append(Identity(name, file, private))
    return authority, tuple(identities)
