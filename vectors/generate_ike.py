#!/usr/bin/env python3
"""Writes vectors/ike: known answers for IKE key exchange, key derivation, the Encrypted payload and
signatures, computed here with hashlib, integers and the `cryptography` package (OpenSSL).

  generate_ike.py         exchange.json and sa.json, the same bytes on every run
  generate_ike.py certs   also certs/ and signatures.json, with new random keys
  generate_ike.py usage   also the certificates with a KeyUsage, below a root of their own
  generate_ike.py ml-dsa  also the chain with ML-DSA keys and ml-dsa.json, with new random keys
  generate_ike.py rfc9881 FOLDER  also ml-dsa-rfc9881.json, from the example files of the RFC
"""

import ctypes
import datetime
import hashlib
import hmac
import itertools
import ipaddress
import json
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

OUT = pathlib.Path(__file__).parent / "ike"
SOURCE = "vectors/generate_ike.py (Python integers and hashlib, cryptography/OpenSSL)"


def some(label, length):
    """Bytes that look random and are the same on every run."""
    return hashlib.shake_256(label.encode()).digest(length)


def write(name, content):
    (OUT / name).write_text(json.dumps(content, indent=1) + "\n")


# --- key exchange -----------------------------------------------------------------------------


def pi_times_power_of_two(bits):
    """floor(2^bits * pi) by Machin's formula."""
    guard = 64
    unit = 1 << (bits + guard)

    def arctan_inverse(n):
        total, term, k = 0, unit // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239)) >> guard


def modp(bits, pi_bits, offset):
    """RFC 3526: 2^n - 2^(n-64) - 1 + 2^64 * (floor(2^m pi) + offset)."""
    return 2**bits - 2 ** (bits - 64) - 1 + 2**64 * (pi_times_power_of_two(pi_bits) + offset)


def exchange_modp(number, bits, pi_bits, offset):
    case = {"group": number, "source": "the prime from its formula (RFC 3526), pow() of Python"}
    return case | exchange_powers(f"modp{bits}", modp(bits, pi_bits, offset), 2)


def exchange_powers(label, p, generator):
    length = p.bit_length() // 8
    private = [some(f"{label}-{side}", 64) for side in "ir"]
    public = [pow(generator, int.from_bytes(x), p).to_bytes(length) for x in private]
    shared = pow(int.from_bytes(public[1]), int.from_bytes(private[0]), p).to_bytes(length)
    return sides(private, public, shared)


def exchange_subgroup(number, name):
    """The groups of RFC 5114, whose numbers OpenSSL has."""
    library = ctypes.CDLL("libcrypto.so.3")
    for function in (f"DH_get_{name}", "BN_bn2hex"):
        getattr(library, function).restype = ctypes.c_void_p
    group = ctypes.c_void_p(getattr(library, f"DH_get_{name}")())
    numbers = [ctypes.c_void_p() for _ in range(3)]
    library.DH_get0_pqg(group, *map(ctypes.byref, numbers))
    p, q, g = (int(ctypes.string_at(library.BN_bn2hex(n)), 16) for n in numbers)
    assert pow(g, q, p) == 1
    case = {"group": number, "source": "RFC 5114 numbers from OpenSSL, pow() of Python"}
    return case | exchange_powers(f"subgroup-{name}", p, g)


def exchange_modp_with_leading_zero(number, bits, pi_bits, offset):
    """A shared secret that begins with a zero byte keeps it (RFC 7296 section 2.14)."""
    p = modp(bits, pi_bits, offset)
    length = bits // 8
    private_i = some("leading-zero-i", 64)
    for attempt in range(5000):
        private_r = some(f"leading-zero-r{attempt}", 64)
        public_r = pow(2, int.from_bytes(private_r), p)
        shared = pow(public_r, int.from_bytes(private_i), p).to_bytes(length)
        if shared[0] == 0:
            public = [pow(2, int.from_bytes(private_i), p).to_bytes(length), public_r.to_bytes(length)]
            case = {"group": number, "source": "as above, with a leading zero in the secret"}
            return case | sides([private_i, private_r], public, shared)
    raise SystemExit("no leading zero found")


def sides(private, public, shared):
    return {
        "private_i": private[0].hex(),
        "private_r": private[1].hex(),
        "public_i": public[0].hex(),
        "public_r": public[1].hex(),
        "shared": shared.hex(),
    }


def exchange_ecp(number, curve, private_hex, shared_hex, source):
    private = [bytes.fromhex(x) for x in private_hex]
    keys = [ec.derive_private_key(int.from_bytes(x), curve) for x in private]
    encoding = serialization.Encoding.X962
    form = serialization.PublicFormat.UncompressedPoint
    public = [key.public_key().public_bytes(encoding, form)[1:] for key in keys]
    shared = keys[0].exchange(ec.ECDH(), keys[1].public_key())
    assert shared_hex is None or shared == bytes.fromhex(shared_hex)
    return {"group": number, "source": source} | sides(private, public, shared)


def exchange_x25519(private, shared_hex, source):
    keys = [x25519.X25519PrivateKey.from_private_bytes(x) for x in private]
    public = [key.public_key().public_bytes_raw() for key in keys]
    shared = keys[0].exchange(keys[1].public_key())
    assert shared_hex is None or shared == bytes.fromhex(shared_hex)
    return {"group": 31, "source": source} | sides(private, public, shared)


def exchanges():
    p256 = (
        "C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433",
        "C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53",
    )
    p384 = (
        "099F3C7034D4A2C699884D73A375A67F7624EF7C6B3C0F160647B67414DCE655"
        "E35B538041E649EE3FAEF896783AB194",
        "41CB0779B4BDB85D47846725FBEC3C9430FAB46CC8DC5060855CC9BDA0AA2942"
        "E0308312916B8ED2960E4BD55A7448FC",
    )
    rfc7748 = (
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"),
        bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"),
    )
    cases = [
        exchange_modp(14, 2048, 1918, 124476),
        exchange_modp_with_leading_zero(14, 2048, 1918, 124476),
        exchange_modp(15, 3072, 2942, 1690314),
        exchange_modp(16, 4096, 3966, 240904),
        exchange_modp(2, 1024, 894, 129093),
        exchange_modp(5, 1536, 1406, 741804),
        exchange_modp(17, 6144, 6014, 929484),
        exchange_modp(18, 8192, 8062, 4743158),
        exchange_subgroup(22, "1024_160"),
        exchange_subgroup(23, "2048_224"),
        exchange_subgroup(24, "2048_256"),
        exchange_ecp(
            19,
            ec.SECP256R1(),
            p256,
            "D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE",
            "RFC 5903 section 8.1",
        ),
        exchange_ecp(
            20,
            ec.SECP384R1(),
            p384,
            "11187331C279962D93D604243FD592CB9D0A926F422E47187521287E7156C5C4"
            "D603135569B9E9D09CF5D4A270F59746",
            "RFC 5903 section 8.2",
        ),
        exchange_ecp(
            21,
            ec.SECP521R1(),
            ["00" + some(f"p521-{side}", 65).hex() for side in "ir"],
            None,
            SOURCE,
        ),
        exchange_x25519(
            rfc7748,
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
            "RFC 7748 section 6.1",
        ),
        exchange_x25519([some("x25519-i", 32), some("x25519-r", 32)], None, SOURCE),
    ]
    write("exchange.json", {"source": SOURCE, "cases": cases})


# --- key derivation and the Encrypted payload ---------------------------------------------------

PRF_HASH = {2: "sha1", 5: "sha256", 6: "sha384", 7: "sha512"}
PRF_AES_XCBC, PRF_AES_CMAC = 4, 8
PRFS = [*PRF_HASH, PRF_AES_XCBC, PRF_AES_CMAC]
INTEGRITY = {2: ("sha1", 20, 12), 12: ("sha256", 32, 16), 13: ("sha384", 48, 24), 14: ("sha512", 64, 32)}
AES_CBC, AES_GCM_16 = 12, 20
CIPHERS = [
    (AES_GCM_16, 128, None),
    (AES_GCM_16, 192, None),
    (AES_GCM_16, 256, None),
    (AES_CBC, 128, 12),
    (AES_CBC, 192, 13),
    (AES_CBC, 256, 14),
    (AES_CBC, 256, 2),
]


def aes_block(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xcbc(key, data):
    """RFC 3566 section 4, without truncation."""
    k1, k2, k3 = (aes_block(key, bytes([n]) * 16) for n in (1, 2, 3))
    whole = len(data) > 0 and len(data) % 16 == 0
    if not whole:
        data += b"\x80" + bytes(-(len(data) + 1) % 16)
    blocks = [data[at:at + 16] for at in range(0, len(data), 16)]
    state = bytes(16)
    xor = lambda a, b: bytes(x ^ y for x, y in zip(a, b))
    for block in blocks[:-1]:
        state = aes_block(k1, xor(state, block))
    return aes_block(k1, xor(xor(state, blocks[-1]), k2 if whole else k3))


def cmac(key, data):
    mac = CMAC(algorithms.AES(key))
    mac.update(data)
    return mac.finalize()


def prf(number, key, data):
    if number == PRF_AES_XCBC:
        # RFC 4434 section 2
        return xcbc(xcbc(bytes(16), key) if len(key) > 16 else key.ljust(16, b"\0"), data)
    if number == PRF_AES_CMAC:
        # RFC 4615 section 3
        return cmac(key if len(key) == 16 else cmac(bytes(16), key), data)
    return hmac.new(key, data, PRF_HASH[number]).digest()


def first_prf_key(number, n_i, n_r):
    """RFC 7296 section 2.14: the AES PRFs take 64 bits of each nonce."""
    return n_i + n_r if number in PRF_HASH else n_i[:8] + n_r[:8]


def check_prfs():
    """The PRFs give what RFC 4434 section 4 and RFC 4615 section 4 say."""
    message = bytes(range(20))
    for number, key_len, output in [
        (PRF_AES_XCBC, 16, "47f51b4564966215b8985c63055ed308"),
        (PRF_AES_XCBC, 10, "0fa087af7d866e7653434e602fdde835"),
        (PRF_AES_XCBC, 18, "8cd3c93ae598a9803006ffb67c40e9e4"),
        (PRF_AES_CMAC, 18, "84a348a4a45d235babfffc0d2b4da09a"),
        (PRF_AES_CMAC, 16, "980ae87b5f4c9c5214f5b6a8455e4c2d"),
        (PRF_AES_CMAC, 10, "290d9e112edb09ee141fcf64c0b72f3d"),
    ]:
        key = (bytes(range(16)) + b"\xed\xcb")[:key_len]
        assert prf(number, key, message).hex() == output, (number, key_len)


def prf_plus(number, key, seed, length):
    """RFC 7296 section 2.13."""
    out, block, counter = b"", b"", 1
    while len(out) < length:
        block = prf(number, key, block + seed + bytes([counter]))
        out += block
        counter += 1
    return out[:length]


def sa_keys(suite, skeyseed, n_i, n_r, spi_i, spi_r):
    """RFC 7296 section 2.14."""
    cipher, bits, integrity, number = suite
    p_len = len(prf(number, b"", b""))
    e_len = bits // 8 + (4 if cipher == AES_GCM_16 else 0)
    a_len = INTEGRITY[integrity][1] if integrity else 0
    lengths = {"d": p_len, "ai": a_len, "ar": a_len, "ei": e_len, "er": e_len, "pi": p_len, "pr": p_len}
    stream = prf_plus(number, skeyseed, n_i + n_r + spi_i + spi_r, sum(lengths.values()))
    keys = {}
    for name, length in lengths.items():
        keys[name], stream = stream[:length], stream[length:]
    return keys


def seal(suite, e, a, spi_i, spi_r, flags, message_id, first, content, iv, padding_len):
    """An INFORMATIONAL message with one Encrypted payload (RFC 7296 section 3.14, RFC 5282)."""
    cipher, _, integrity, _ = suite
    padded = content + bytes(range(1, padding_len + 1)) + bytes([padding_len])
    icv_len = INTEGRITY[integrity][2] if integrity else 16
    payload_len = 4 + len(iv) + len(padded) + icv_len
    header = spi_i + spi_r + bytes([46, 0x20, 37, flags]) + message_id.to_bytes(4)
    header += (28 + payload_len).to_bytes(4) + bytes([first, 0]) + payload_len.to_bytes(2)
    if cipher == AES_GCM_16:
        return header + iv + AESGCM(e[:-4]).encrypt(e[-4:] + iv, padded, header)
    encryptor = Cipher(algorithms.AES(e), modes.CBC(iv)).encryptor()
    message = header + iv + encryptor.update(padded) + encryptor.finalize()
    return message + hmac.new(a, message, INTEGRITY[integrity][0]).digest()[:icv_len]


def sa_case(suite, psk):
    cipher, bits, integrity, number = suite
    label = f"sa-{cipher}-{bits}-{number}"
    n_i, n_r = some(label + "ni", 32), some(label + "nr", 24)
    spi_i, spi_r = some(label + "spi-i", 8), some(label + "spi-r", 8)
    shared = some(label + "shared", 32)
    skeyseed = prf(number, first_prf_key(number, n_i, n_r), shared)
    keys = sa_keys(suite, skeyseed, n_i, n_r, spi_i, spi_r)
    again = {name: some(label + "again" + name, length) for name, length in
             [("shared", 48), ("n_i", 16), ("n_r", 256), ("spi_i", 8), ("spi_r", 8)]}
    skeyseed = prf(number, keys["d"], again["shared"] + again["n_i"] + again["n_r"])
    rekeyed = sa_keys(suite, skeyseed, *(again[name] for name in ("n_i", "n_r", "spi_i", "spi_r")))
    message, id_body = some(label + "message", 300), b"\x02\0\0\0moon.example.org"
    octets = message + n_r + prf(number, keys["pi"], id_body)
    auth = lambda octets: prf(number, prf(number, psk, b"Key Pad for IKEv2"), octets)
    # draft-ietf-ipsecme-ikev2-downgrade-prevention: each end signs both messages, its own one last.
    response, zero_prefix = some(label + "response", 200), bytes(8)
    full_i = zero_prefix + response + message + n_r + prf(number, keys["pi"], id_body)
    full_r = zero_prefix + message + response + n_i + prf(number, keys["pr"], id_body)
    # A Notify payload: protocol 0, no SPI, type 16384, data.
    data = some(label + "data", 21)
    content = bytes([0, 0]) + (8 + len(data)).to_bytes(2) + bytes([0, 0]) + (16384).to_bytes(2) + data
    if cipher == AES_GCM_16:
        iv, padding_len = (1).to_bytes(8), 0
    else:
        iv, padding_len = some(label + "iv", 16), -(len(content) + 1) % 16
    sealed = seal(suite, keys["ei"], keys["ai"], spi_i, spi_r, 0x08, 2, 41, content, iv, padding_len)
    hexed = lambda mapping: {name: value.hex() for name, value in mapping.items()}
    return {
        "encryption": cipher, "key_bits": bits, "integrity": integrity, "prf": number,
        "n_i": n_i.hex(), "n_r": n_r.hex(), "spi_i": spi_i.hex(), "spi_r": spi_r.hex(),
        "shared": shared.hex(), "keys": hexed(keys),
        "again": hexed(again), "rekeyed": hexed(rekeyed),
        "child": prf_plus(number, keys["d"], n_i + n_r, 72).hex(),
        "child_pfs": prf_plus(number, keys["d"], shared + n_i + n_r, 200).hex(),
        "message": message.hex(), "id_body": id_body.hex(), "psk": psk.hex(),
        "signed_octets": octets.hex(), "auth": auth(octets).hex(),
        "response": response.hex(), "full_i": full_i.hex(), "full_r": full_r.hex(),
        "full_auth_i": auth(full_i).hex(), "full_auth_r": auth(full_r).hex(),
        "notify_data": data.hex(), "sealed": sealed.hex(),
    }


def sas():
    check_prfs()
    suites = [(*cipher, number) for cipher in CIPHERS for number in PRFS]
    # As long as a block of SHA-256 or SHA-512, and one byte longer.
    psks = itertools.cycle([b"a pre-shared key", *(some(f"psk-{length}", length) for length in (64, 65, 128, 129))])
    cases = [sa_case(suite, psk) for suite, psk in zip(suites, psks)]
    write("sa.json", {"source": SOURCE, "cases": cases})


# --- certificates and signatures ----------------------------------------------------------------

FROM = datetime.datetime(2020, 1, 1)
TO = datetime.datetime(2120, 1, 1)
IPSEC_IKE = ObjectIdentifier("1.3.6.1.5.5.7.3.17")
IKE_INTERMEDIATE = ObjectIdentifier("1.3.6.1.5.5.8.2.2")


def name(common):
    return x509.Name([
        x509.NameAttribute(NameOID.COUNTRY_NAME, "CH"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Esplanade Test"),
        x509.NameAttribute(NameOID.COMMON_NAME, common),
    ])


def digest_for(key):
    by_itself = (ed25519.Ed25519PrivateKey, mldsa.MLDSA44PrivateKey, mldsa.MLDSA65PrivateKey, mldsa.MLDSA87PrivateKey)
    return None if isinstance(key, by_itself) else hashes.SHA256()


def p256():
    return ec.generate_private_key(ec.SECP256R1())


def certificate(file, common, key, issuer, *, ca=False, start=FROM, end=TO, eku=None, host=None, usage=None):
    issuer_name, issuer_key = issuer or (name(common), key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(common)).issuer_name(issuer_name).public_key(key.public_key())
        .serial_number(int.from_bytes(some(file, 8)) >> 1)
        .not_valid_before(start).not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([
            x509.DNSName(f"{host}.example.org"), x509.RFC822Name(f"{host}@example.org"),
            x509.IPAddress(ipaddress.ip_address("192.0.2.1")),
            x509.IPAddress(ipaddress.ip_address("2001:db8::1")),
        ]), critical=False)
    if eku:
        builder = builder.add_extension(x509.ExtendedKeyUsage(eku), critical=False)
    if usage:
        bits = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
                "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
        builder = builder.add_extension(x509.KeyUsage(**{bit: bit == usage for bit in bits}), critical=True)
    made = builder.sign(issuer_key, digest_for(issuer_key))
    (OUT / "certs" / f"{file}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made.subject, key


def write_key(file, key, form=serialization.PrivateFormat.PKCS8):
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (OUT / "certs" / f"{file}.key").write_bytes(pem)


def write_key_hash(file, key):
    """The hash that a CERTREQ payload names an authority by (RFC 7296 section 3.7)."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    spki = key.public_key().public_bytes(serialization.Encoding.DER, form)
    (OUT / "certs" / f"{file}.sha1").write_text(hashlib.sha1(spki).hexdigest() + "\n")


def certs():
    root = certificate("root", "Root", p256(), None, ca=True)
    write_key_hash("root", root[1])
    certificate("other-root", "Other Root", p256(), None, ca=True)
    intermediate = certificate("intermediate", "Intermediate", p256(), root, ca=True)
    keys = {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ecdsa256": p256(),
        "ecdsa384": ec.generate_private_key(ec.SECP384R1()),
        "ecdsa521": ec.generate_private_key(ec.SECP521R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
    }
    for kind, key in keys.items():
        certificate(f"moon-{kind}", f"moon {kind}", key, root, host="moon")
        write_key(f"moon-{kind}", key)
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    write_key("moon-rsa-pkcs1", keys["rsa"], traditional)
    write_key("moon-ecdsa256-sec1", keys["ecdsa256"], traditional)
    certificate("sun", "sun", p256(), intermediate, host="sun")
    key = keys["ecdsa256"]
    day = datetime.timedelta(days=1)
    certificate("expired", "expired", key, root, host="moon", end=FROM + day)
    certificate("not-yet", "not yet", key, root, host="moon", start=TO - day)
    server = ExtendedKeyUsageOID.SERVER_AUTH
    certificate("eku-server", "eku server", key, root, host="moon", eku=[server])
    certificate("eku-ike", "eku ike", key, root, host="moon", eku=[server, IPSEC_IKE])
    certificate("eku-intermediate", "eku older", key, root, host="moon", eku=[server, IKE_INTERMEDIATE])
    any_eku = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
    certificate("eku-any", "eku any", key, root, host="moon", eku=[any_eku])
    certificate("ca-as-peer", "ca as peer", key, root, host="moon", ca=True)
    certificate("secp256k1", "secp256k1", ec.generate_private_key(ec.SECP256K1()), root, host="moon")
    signatures(keys)


def signatures(keys):
    octets = some("signed octets", 500)
    sha = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}
    cases = []
    for label, digest in sha.items():
        pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
        for scheme, pad in [("pkcs1", padding.PKCS1v15()), ("pss", pss)]:
            value = keys["rsa"].sign(octets, pad, digest)
            cases.append({"certificate": "moon-rsa", "scheme": f"{scheme}-{label}", "value": value.hex()})
        for curve in ("ecdsa256", "ecdsa384", "ecdsa521"):
            value = keys[curve].sign(octets, ec.ECDSA(digest))
            cases.append({"certificate": f"moon-{curve}", "scheme": f"ecdsa-{label}", "value": value.hex()})
    value = keys["ed25519"].sign(octets)
    cases.append({"certificate": "moon-ed25519", "scheme": "ed25519", "value": value.hex()})
    for label, digest in {"sha1": hashes.SHA1(), **sha}.items():
        value = keys["rsa"].sign(octets, padding.PKCS1v15(), digest)
        cases.append({"certificate": "moon-rsa", "scheme": f"method1-{label}", "value": value.hex()})
    write("signatures.json", {"source": SOURCE, "octets": octets.hex(), "cases": cases})


def ml_dsa():
    root = certificate("ml-dsa-root", "ML-DSA Root", mldsa.MLDSA87PrivateKey.generate(), None, ca=True)
    between = certificate("ml-dsa-intermediate", "ML-DSA Intermediate", mldsa.MLDSA65PrivateKey.generate(), root, ca=True)
    octets, cases = some("signed octets", 500), []
    for size, kind in ((44, mldsa.MLDSA44PrivateKey), (65, mldsa.MLDSA65PrivateKey), (87, mldsa.MLDSA87PrivateKey)):
        key = kind.generate()
        certificate(f"moon-mldsa{size}", f"moon ML-DSA-{size}", key, between, host="moon")
        write_key(f"moon-mldsa{size}", key)
        cases.append({"certificate": f"moon-mldsa{size}", "scheme": f"mldsa{size}", "value": key.sign(octets).hex()})
    write("ml-dsa.json", {"source": SOURCE, "octets": octets.hex(), "cases": cases})


def ml_dsa_of_rfc_9881(folder):
    """The keys of RFC 9881 appendix C, from its files."""
    text = lambda file: (folder / file).read_text()
    cases = [{
        "scheme": f"mldsa{size}", "certificate": text(f"ML-DSA-{size}.crt"), "public": text(f"ML-DSA-{size}.pub"),
        "private": {form: text(f"ML-DSA-{size}-{form}.priv") for form in ("seed", "expanded", "both")},
    } for size in (44, 65, 87)]
    inconsistent = [text(f"bad-ML-DSA-44-{number}.priv") for number in (1, 2, 3)]
    write("ml-dsa-rfc9881.json", {"source": "RFC 9881 appendix C", "cases": cases, "inconsistent": inconsistent})


def key_usages():
    root = certificate("usage-root", "Usage Root", p256(), None, ca=True)
    for usage in ("digital_signature", "content_commitment", "key_encipherment"):
        certificate(f"usage-{usage.replace('_', '-')}", usage, p256(), root, host="moon", usage=usage)


exchanges()
sas()
if "usage" in sys.argv[1:]:
    key_usages()
if "ml-dsa" in sys.argv[1:]:
    ml_dsa()
if "rfc9881" in sys.argv[1:-1]:
    ml_dsa_of_rfc_9881(pathlib.Path(sys.argv[-1]))
if "certs" in sys.argv[1:]:
    certs()
