"""Makes certificate authorities with openssl at run time, one per kind of key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .process import run

KEY_OPTIONS = {
    "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "ecdsa": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "ecdsa384": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
    "ecdsa521": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"],
    "ed25519": ["-algorithm", "ED25519"],
}


@dataclass(frozen=True)
class Identity:
    name: str
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path, kind: str, name: str):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kind, self.name = folder, kind, name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._identities: dict[str, Identity] = {}
        run(["openssl", "genpkey", *KEY_OPTIONS[kind], "-out", self._key])
        run(["openssl", "req", "-x509", "-new", "-key", self._key, "-subj", f"/O=Interop/CN={name}", "-days", "2",
             "-out", self.certificate])

    def identity(self, name: str) -> Identity:
        """The certificate of a gateway for the DNS name. It is made once."""
        if name not in self._identities:
            stem = self.folder / f"{self.name}-{name}"
            key, request, certificate, extensions = (stem.with_suffix(s) for s in (".key", ".csr", ".crt", ".ext"))
            run(["openssl", "genpkey", *KEY_OPTIONS[self.kind], "-out", key])
            run(["openssl", "req", "-new", "-key", key, "-subj", f"/O=Interop/CN={name}", "-out", request])
            extensions.write_text(f"subjectAltName=DNS:{name}\nkeyUsage=digitalSignature\n"
                                  "basicConstraints=critical,CA:FALSE\n")
            run(["openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-days", "2",
                 "-extfile", extensions, "-out", certificate])
            self._identities[name] = Identity(name, certificate, key)
        return self._identities[name]
