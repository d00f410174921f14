"""Makes certificate authorities with openssl at run time, one per kind of key."""

from __future__ import annotations

import fcntl
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .process import run

KEY_OPTIONS = {
    "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "rsa4096": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"],
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


# RSA keys take long to make. The workers of a run share them: each takes them in the same order, and none twice.
KEYS = Path("/run/interop-keys")
_taken: Counter[str] = Counter()


def make_key(kind: str, file: Path) -> None:
    if not kind.startswith("rsa"):
        run(["openssl", "genpkey", *KEY_OPTIONS[kind], "-out", file])
        return
    KEYS.mkdir(mode=0o700, exist_ok=True)
    made = KEYS / f"{kind}-{_taken[kind]}.key"
    _taken[kind] += 1
    with open(f"{made}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            new = made.with_suffix(".new")
            # A long key takes a while on a machine with other work.
            run(["openssl", "genpkey", *KEY_OPTIONS[kind], "-out", new], timeout=180)
            new.rename(made)
    shutil.copy(made, file)


# The validity of an attribute certificate, for strongSwan's `pki`.
EXPIRED = ["--not-before", "01.01.24 00:00:00", "--not-after", "01.02.24 00:00:00"]


class Authority:
    """A root, or with an issuer an intermediate authority."""

    def __init__(self, folder: Path, kind: str, name: str, issuer: Authority | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kind, self.name, self.issuer = folder, kind, name, issuer
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._identities: dict[tuple[str, str], Identity] = {}
        self.crls = 0
        if issuer:
            issuer.issue(self._key, name, self.certificate, "keyUsage=keyCertSign,cRLSign\n"
                                                            "basicConstraints=critical,CA:TRUE\n", kind)
            return
        make_key(kind, self._key)
        run(["openssl", "req", "-x509", "-new", "-key", self._key, "-subj", f"/O=Interop/CN={name}", "-days", "2",
             "-out", self.certificate])

    def issue(self, key: Path, name: str, certificate: Path, extensions: str, kind: str) -> None:
        """Makes a key and its certificate."""
        request, file = certificate.with_suffix(".csr"), certificate.with_suffix(".ext")
        file.write_text(extensions)
        make_key(kind, key)
        run(["openssl", "req", "-new", "-key", key, "-subj", f"/O=Interop/CN={name}", "-out", request])
        run(["openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-days", "2",
             "-extfile", file, "-out", certificate])

    def chain(self) -> list[Path]:
        """The certificates of the intermediate authorities from this one up, without the root's."""
        return [self.certificate, *self.issuer.chain()] if self.issuer else []

    def identity(self, name: str, extensions: str = "") -> Identity:
        """The certificate of a gateway for the DNS name, with the intermediate ones behind it. It is made once."""
        if (name, extensions) not in self._identities:
            stem = f"{self.name}-{name}-{len(self._identities)}"
            key, certificate = self.folder / f"{stem}.key", self.folder / f"{stem}.crt"
            self.issue(key, name, certificate, f"subjectAltName=DNS:{name}\nkeyUsage=digitalSignature\n"
                                               f"basicConstraints=critical,CA:FALSE\n{extensions}", self.kind)
            with certificate.open("a") as file:
                file.writelines(above.read_text() for above in self.chain())
            self._identities[name, extensions] = Identity(name, certificate, key)
        return self._identities[name, extensions]

    def reissue(self, identity: Identity, begin: str, end: str) -> Identity:
        """The same key with a certificate of another validity, as `YYMMDDHHMMSSZ`."""
        stem = self.folder / f"reissued-{begin}-{end}"
        certificate, request, config, index = (stem.with_suffix(s) for s in (".crt", ".csr", ".conf", ".index"))
        index.write_text("")
        config.write_text(f"[ca]\ndefault_ca = d\n[d]\ndatabase = {index}\nnew_certs_dir = {self.folder}\n"
                          "default_md = default\nrand_serial = yes\npolicy = p\nx509_extensions = e\n"
                          f"[p]\ncommonName = supplied\n[e]\nsubjectAltName = DNS:{identity.name}\n"
                          "basicConstraints = critical,CA:FALSE\n")
        run(["openssl", "req", "-new", "-key", identity.key, "-subj", f"/CN={identity.name}", "-out", request])
        run(["openssl", "ca", "-batch", "-notext", "-config", config, "-cert", self.certificate, "-keyfile", self._key,
             "-in", request, "-startdate", begin, "-enddate", end, "-out", certificate])
        return Identity(identity.name, certificate, identity.key)

    def attribute_authority(self, name: str) -> Identity:
        """One that issues attribute certificates. It is no authority for certificates (RFC 5755 §4.5)."""
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        self.issue(key, name, certificate, "keyUsage=digitalSignature\nbasicConstraints=critical,CA:FALSE\n", self.kind)
        return Identity(name, certificate, key)

    def responder(self, good: list[Identity], revoked: list[Identity], port: int) -> list[str]:
        """The command of an OCSP responder that knows these certificates."""
        index = self.folder / f"{self.name}-{port}-ocsp.index"
        lines = [f"V\t491231235959Z\t\t{self._serial(one)}\tunknown\t/CN={one.name}\n" for one in good]
        lines += [f"R\t491231235959Z\t260101000000Z,keyCompromise\t{self._serial(one)}\tunknown\t/CN={one.name}\n"
                  for one in revoked]
        index.write_text("".join(lines))
        return ["openssl", "ocsp", "-index", str(index), "-port", str(port), "-rsigner", str(self.certificate),
                "-rkey", str(self._key), "-CA", str(self.certificate), "-nmin", "5", "-ignore_err"]

    @staticmethod
    def _serial(identity: Identity) -> str:
        return run(["openssl", "x509", "-in", identity.certificate, "-noout", "-serial"]).stdout.strip().split("=")[1]

    def crl(self, *revoked: Identity, extensions: str = "") -> Path:
        """A new CRL that lists these. Its number is one more than that of the last."""
        self.crls += 1
        stem = self.folder / f"{self.name}-{self.crls}"
        config, index, number, file = (stem.with_suffix(s) for s in (".conf", ".index", ".number", ".crl"))
        index.write_text("")
        number.write_text(f"{self.crls:02x}\n")
        config.write_text(f"[ca]\ndefault_ca = d\n[d]\ndatabase = {index}\ncrlnumber = {number}\ndefault_md = default\n"
                          f"crl_extensions = extensions\n[extensions]\nauthorityKeyIdentifier = keyid\n{extensions}")
        command = ["openssl", "ca", "-config", config, "-cert", self.certificate, "-keyfile", self._key]
        for identity in revoked:
            run([*command, "-revoke", identity.certificate, "-crl_reason", "keyCompromise"])
        run([*command, "-gencrl", "-crldays", "1", "-out", file])
        return file


def attributes(authority: Identity, holder: Identity, *groups: str, validity: list[str] = ()) -> Path:
    """An attribute certificate by strongSwan's `pki`: the holder is in these groups."""
    named = [option for group in groups for option in ("--group", group)]
    made = run(["pki", "--acert", "--in", holder.certificate, *named, "--issuercert", authority.certificate,
                "--issuerkey", authority.key, "--outform", "pem", *validity]).stdout
    stem = f"{holder.name}-{'-'.join(groups)}-{'expired' if validity else 'valid'}-{authority.name}"
    file = authority.certificate.with_name(f"{stem}.ac")
    file.write_text(made)
    return file
