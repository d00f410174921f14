#!/usr/bin/env python3
"""Writes vectors/packets/*.json: whole ESP and AH packets, one file per transform. vectors/README.md has the schema.

Each file covers every pair of values of its axes (AXES below), then what must not pass. packet_oracle.py seals;
whatever scapy can seal too must come out the same.

Needs: pip install scapy cryptography
"""

import itertools
import json
import pathlib
import random
import struct

import scapy
from packet_oracle import Transform, all_transforms, check_primitives, stream
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.ipsec import AH, ESP, SecurityAssociation
from scapy.packet import Raw

SPI = 0x5E100001
TOP = 1000  # highest sequence number received before each packet
BEYOND = 0x1_FFFF_FFF0  # the same, where the low half wraps within the window
WINDOW = 64
SITES = {4: ("10.2.0.7", "10.1.0.9"), 6: ("2001:db8:2::7", "2001:db8:1::9")}
GATEWAYS = {4: ("198.51.100.2", "192.0.2.1"), 6: ("2001:db8:ffff::2", "2001:db8:ffff::1")}
# Local and remote, seen from the receiver.
SELECTORS = {
    "tunnel": [["10.1.0.0/16", "10.2.0.0/16"], ["2001:db8:1::/48", "2001:db8:2::/48"]],
    "transport": [["192.0.2.1/32", "198.51.100.2/32"], ["2001:db8:ffff::1/128", "2001:db8:ffff::2/128"]],
}
AXES = {
    "mode": ("tunnel", "transport"),
    "inner": (4, 6),
    "outer": (4, 6),
    "numbers": ("noesn", "esn", "beyond"),
    "encap": ("raw", "udp"),
    "upper": ("udp", "tcp", "icmp"),
    "len": (0, 1, 33, 90),
}


def covering(axes, legal, seed):
    """Rows that contain every legal pair of values, found greedily with fixed choices."""
    names = list(axes)
    rows = [dict(zip(names, values)) for values in itertools.product(*axes.values())]
    rows = [row for row in rows if legal(row)]
    random.Random(seed).shuffle(rows)
    pairs = {row_id: set(itertools.combinations(sorted(row.items()), 2)) for row_id, row in enumerate(rows)}
    missing = set().union(*pairs.values())
    while missing:
        best = max(pairs, key=lambda row_id: len(pairs[row_id] & missing))
        missing -= pairs[best]
        yield rows[best]


def addresses(table, version):
    return dict(zip(("src", "dst"), table[version]))


def packet(version, length, upper="udp", table=SITES, tos=0, dst=None, hop_by_hop=False):
    """An IP packet as bytes, with right lengths and checksums."""
    ends = addresses(table, version)
    if dst:
        ends["dst"] = dst
    if version == 4:
        ip = IP(**ends, tos=tos, ttl=63, id=77)
        layer = {"udp": UDP(sport=5000, dport=40001), "tcp": TCP(sport=40002, dport=40000), "icmp": ICMP(id=3, seq=4)}
    else:
        ip = IPv6(**ends, tc=tos, hlim=63)
        ip = ip / IPv6ExtHdrHopByHop() if hop_by_hop else ip
        layer = {"udp": UDP(sport=5000, dport=40001), "tcp": TCP(sport=40002, dport=40000),
                 "icmp": ICMPv6EchoRequest(id=3, seq=4)}
    return bytes(ip / layer[upper] / Raw(stream(f"payload {length}", length)))


def checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def fix_v4(frame):
    """The frame with the right IPv4 header checksum."""
    length = (frame[0] & 15) * 4
    header = bytearray(frame[:length])
    header[10:12] = b"\0\0"
    header[10:12] = struct.pack(">H", checksum(header))
    return bytes(header) + frame[length:]


def resize(frame):
    """The frame with the right length in its IP header."""
    frame = bytearray(frame)
    if frame[0] >> 4 == 4:
        frame[2:4] = struct.pack(">H", len(frame))
        return fix_v4(bytes(frame))
    frame[4:6] = struct.pack(">H", len(frame) - 40)
    return bytes(frame)


def around(version, protocol, tos=0):
    """The header of an outer packet; resize() completes it."""
    ends = addresses(GATEWAYS, version)
    ip = IP(**ends, tos=tos, ttl=64, flags="DF", id=1) if version == 4 else IPv6(**ends, tc=tos, hlim=64)
    header = bytearray(bytes(ip))
    header[9 if version == 4 else 6] = protocol
    return bytes(header)


def split(inner):
    """Headers in front of ESP or AH in transport mode, where the last says what follows, and what follows."""
    if inner[0] >> 4 == 4:
        end = (inner[0] & 15) * 4
        return inner[:end], 9, inner[9], inner[end:]
    at, field = 40, 6
    while inner[field] in (0, 43):
        field, at = at, at + 8 + inner[at + 1] * 8
    return inner[:at], field, inner[field], inner[at:]


def put(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1 :]


def flip(data, at):
    at %= len(data)
    return put(data, at, data[at] ^ 0x40)


def udp_wrap(frame_header, esp, version):
    """UDP encapsulation (RFC 3948): no checksum over IPv4, the real one over IPv6."""
    datagram = struct.pack(">HHHH", 4500, 4500, 8 + len(esp), 0) + esp
    if version == 6:
        pseudo = frame_header[8:40] + struct.pack(">IHBB", len(datagram), 0, 0, 17)
        value = checksum(pseudo + datagram + bytes(len(datagram) % 2)) or 0xFFFF
        datagram = datagram[:6] + struct.pack(">H", value) + datagram[8:]
    return datagram


class Sa:
    def __init__(self, transform: Transform, mode, numbers, encap="raw"):
        self.transform, self.mode, self.encap = transform, mode, encap
        self.esn = numbers != "noesn"
        self.top = BEYOND if numbers == "beyond" else TOP
        self.key = stream(f"{transform.name} {self.esn}", transform.key_len)

    def seal_esp(self, sequence, body):
        return self.transform.seal_esp(self.key, SPI, self.esn, sequence, body)

    def esp_frame(self, version, esp, tos=0, header=None):
        """`header` in transport mode: what stood in front of the upper layer."""
        protocol = 17 if self.encap == "udp" else 50
        header = header or around(version, protocol, tos)
        payload = udp_wrap(header, esp, version) if self.encap == "udp" else esp
        return resize(header + payload)

    def esp(self, sequence, inner, outer, tos=0, body=None):
        """Gives the frame around `inner`; or around another body than it would have."""
        if self.mode == "tunnel":
            body = body or self.transform.pad(inner, 4 if inner[0] >> 4 == 4 else 41)
            return self.esp_frame(outer, self.seal_esp(sequence, body), tos)
        header, field, next_header, payload = split(inner)
        body = body or self.transform.pad(payload, next_header)
        header = put(header, field, 17 if self.encap == "udp" else 50)
        return self.esp_frame(outer, self.seal_esp(sequence, body), header=header)

    def ah(self, sequence, inner, outer, tos=0, reserved=0, filler=0):
        if self.mode == "tunnel":
            header, next_header, payload = around(outer, 51, tos), 4 if inner[0] >> 4 == 4 else 41, inner
        else:
            header, field, next_header, payload = split(inner)
            header = put(header, field, 51)
        whole = resize(header + bytes(self.transform.ah_len(outer)) + payload)
        header = whole[: len(header)]
        ah = self.transform.seal_ah(self.key, SPI, self.esn, sequence, outer, header, next_header, payload,
                                    reserved, filler)
        return header + ah + payload

    def frame(self, sequence, inner, outer, tos=0):
        seal = self.esp if self.transform.protocol == "esp" else self.ah
        return seal(sequence, inner, outer, tos)

    def scapy_sa(self, sequence, outer):
        """None where scapy lacks the algorithm."""
        t = self.transform
        crypt = {"gcm": "AES-GCM", "ccm": "AES-CCM", "gmac": "AES-NULL-GMAC", "chacha": "CHACHA20-POLY1305",
                 "aes-cbc": "AES-CBC", "ctr": "AES-CTR", "des": "DES", "3des": "3DES", "null": "NULL"}.get(t.cipher)
        auth = {"HMAC_SHA2_256_128": "SHA2-256-128", "HMAC_SHA2_384_192": "SHA2-384-192",
                "HMAC_SHA2_512_256": "SHA2-512-256", "HMAC_SHA1_96": "HMAC-SHA1-96", "HMAC_MD5_96": "HMAC-MD5-96",
                "AES_CMAC_96": "AES-CMAC-96"}.get(t.integrity)
        # scapy always writes 16 bytes of GCM tag, has no implicit IV, no XCBC and no AH with GMAC.
        if t.implicit_iv or (t.integrity and not auth) or t.cipher == "ah-gmac" or (t.cipher == "gcm" and t.icv_len < 16):
            return None
        if t.cipher == "des" and t.protocol == "esp":
            return None  # scapy calls a single-DES class that newer cryptography refuses
        if t.finalist:
            return None
        cipher_key = self.key[: t.cipher_len + t.salt_len] or None
        return SecurityAssociation(
            ESP if t.protocol == "esp" else AH, spi=SPI, seq_num=sequence & 0xFFFFFFFF,
            crypt_algo=crypt if t.protocol == "esp" else None, crypt_key=cipher_key,
            crypt_icv_size=t.icv_len if t.cipher == "ccm" else None,
            auth_algo=auth, auth_key=self.key[t.cipher_len + t.salt_len :] or None, esn_en=self.esn,
            esn=sequence >> 32, tunnel_header=self.scapy_tunnel(outer),
            nat_t_header=UDP(sport=4500, dport=4500) if self.encap == "udp" else None)

    def scapy(self, sequence, inner, outer):
        """The same frame by scapy."""
        sa = self.scapy_sa(sequence, outer)
        if sa is None:
            return None
        ip = (IP if inner[0] >> 4 == 4 else IPv6)(inner)
        number = {"seq_num": sequence & 0xFFFFFFFF, "esn_en": self.esn, "esn": sequence >> 32}
        if self.transform.protocol == "esp":
            number["iv"] = self.transform.iv(sequence)[: self.transform.iv_len]
        return bytes(sa.encrypt(ip, **number))

    def scapy_tunnel(self, outer):
        if self.mode == "transport":
            return None
        ends = addresses(GATEWAYS, outer)
        return IP(**ends, ttl=64, flags="DF", id=1) if outer == 4 else IPv6(**ends, hlim=64)


def case(sa, name, sequence, frame, delivered=None, drop=None):
    assert (delivered is None) != (drop is None)
    return {"name": name, "mode": sa.mode, "esn": sa.esn, "udp": sa.encap == "udp", "key": sa.key.hex(),
            "sequence": f"{sequence:x}", "replay_top": f"{sa.top:x}", "frame": frame.hex(),
            "delivered": delivered and delivered.hex(), "drop": drop}


def check_scapy(sa, sequence, inner, outer, frame):
    other = sa.scapy(sequence, inner, outer)
    if other is None:
        return
    if sa.encap == "udp" and outer == 6:
        # scapy leaves the checksum zero over IPv6 too, which a receiver must refuse (RFC 8200 §8.1).
        other, frame = other[:46] + other[48:], frame[:46] + frame[48:]
    assert other == frame, f"the two oracles disagree about {sa.transform.name}"


def verify_scapy(sa, sequence, frame):
    """For frames as they arrive: scapy's sender would first turn a routing header round."""
    sa = sa.scapy_sa(sequence, 4)
    if sa:
        ip = (IP if frame[0] >> 4 == 4 else IPv6)(frame)
        sa.auth_algo.verify(ip, sa.auth_key, esn_en=sa.esn_en, esn=sa.esn)


def legal(transform):
    def check(row):
        if transform.protocol == "ah" and row["encap"] == "udp":
            return False
        return row["mode"] == "tunnel" or row["inner"] == row["outer"]
    return check


def valid_cases(transform):
    for count, row in enumerate(covering(AXES, legal(transform), transform.name)):
        sa = Sa(transform, row["mode"], row["numbers"], row["encap"])
        sequence = sa.top + 1 + count
        table = SITES if sa.mode == "tunnel" else GATEWAYS
        extension = row["inner"] == 6 and count % 2 == 0 and sa.encap == "raw"
        inner = packet(row["inner"], row["len"], row["upper"], table, hop_by_hop=extension)
        frame = sa.frame(sequence, inner, row["outer"])
        check_scapy(sa, sequence, inner, row["outer"], frame)
        where = f"v{row['inner']} in v{row['outer']}" if sa.mode == "tunnel" else f"v{row['outer']}"
        name = f"{sa.mode} {where} {row['encap']} {row['numbers']} {row['upper']} {row['len']}"
        yield case(sa, name, sequence, frame, inner)


def number_cases(transform):
    """Around the replay window."""
    for numbers in ("noesn", "esn", "beyond"):
        sa = Sa(transform, "tunnel", numbers)
        inner = packet(4, 20)

        def of(name, sequence, drop):
            frame = sa.frame(sequence, inner, 4)
            return case(sa, f"{name}, {numbers}", sequence, frame, inner if drop is None else None, drop)

        yield of("the newest again", sa.top, "replayed")
        yield of("the last of the window", sa.top - WINDOW + 1, None)
        # With ESN the receiver takes it for a number of the next subspace (RFC 4303 appendix A2).
        yield of("left of the window", sa.top - WINDOW, "authentication-failed" if sa.esn else "before-window")
        yield of("far ahead", sa.top + 0x1000_0000, None)
        if not sa.esn:
            yield of("the last of 32 bits", 0xFFFF_FFFF, None)
            yield of("number zero", 1 << 32, "before-window")


def esp_invalid_cases(transform, seed):
    mode = ("tunnel", "transport")[seed % 2]
    numbers = ("noesn", "esn", "beyond")[seed % 3]
    outer = (4, 6)[seed // 2 % 2]
    sa = Sa(transform, mode, numbers, ("raw", "udp")[seed // 3 % 2])
    sequence, upper_at = sa.top + 1, 8 + transform.iv_len
    inner = packet(outer, 30, table=SITES if mode == "tunnel" else GATEWAYS)
    esp = sa.seal_esp(sequence, transform.pad(*body_of(sa, inner)))

    def add(name, drop, esp):
        return case(sa, name, sequence, sa.esp_frame(outer, esp), drop=drop)

    yield add("ICV changed", "authentication-failed", flip(esp, -1))
    yield add("payload changed", "authentication-failed", flip(esp, upper_at + 4))
    if transform.iv_len:
        yield add("IV changed", "authentication-failed", flip(esp, 9))
    yield add("sequence number changed", "authentication-failed", flip(esp, 7))
    yield add("SPI changed", "unknown-spi", flip(esp, 0))
    yield add("last block cut off", "authentication-failed", esp[: -transform.align])
    yield add("not whole blocks", "malformed-esp", esp[:-1])
    yield add("nothing but header, IV and ICV", "malformed-esp", esp[: upper_at + transform.icv_len])
    yield add("header only", "malformed-esp", esp[:8])
    payload, next_header = body_of(sa, inner)
    bad = bytearray(transform.pad(payload + bytes(-(len(payload) + 5) % transform.align), next_header))
    assert bad[-2] == 3
    bad[-3] ^= 1
    yield add("wrong padding", "bad-padding", sa.seal_esp(sequence, bytes(bad)))
    bad = bytearray(transform.pad(payload[:40], next_header))
    bad[-2] = 255
    yield add("padding longer than the body", "bad-padding", sa.seal_esp(sequence, bytes(bad)))
    dummy = transform.pad(stream("dummy", 50), 59)
    yield add("dummy packet", "dummy", sa.seal_esp(sequence, dummy))


def body_of(sa, inner):
    if sa.mode == "tunnel":
        return inner, 4 if inner[0] >> 4 == 4 else 41
    _, _, next_header, payload = split(inner)
    return payload, next_header


def tunnel_cases(transform, seed):
    """What tunnel mode makes of content and outer header; ESP and AH alike unless it is about the trailer."""
    sa = Sa(transform, "tunnel", ("noesn", "esn", "beyond")[seed % 3])
    esp = transform.protocol == "esp"
    sequence, outer = sa.top + 2, (4, 6)[seed % 2]
    inner = packet(4, 30)

    def add(name, drop, inner, tos=0, delivered=None, body=None):
        frame = sa.esp(sequence, inner, outer, tos, body) if esp else sa.ah(sequence, inner, outer, tos)
        return case(sa, name, sequence, frame, delivered, drop)

    if esp:
        yield add("next header UDP", "bad-next-header", inner, body=transform.pad(inner, 17))
        yield add("IPv4 inside, next header IPv6", "malformed-inner", inner, body=transform.pad(inner, 41))
        yield add("no inner packet", "malformed-inner", inner, body=transform.pad(b"", 4))
        padded = transform.pad(inner + bytes(20), 4)
        yield add("traffic flow confidentiality padding", None, inner, body=padded, delivered=inner)
    yield add("inner packet cut short", "malformed-inner", inner[:-5])
    yield add("inner checksum wrong", "malformed-inner", flip(inner, 10))
    yield add("destination outside the selectors", "selector-mismatch", packet(4, 10, dst="10.9.0.1"))
    yield add("IPv6 outside the selectors", "selector-mismatch", packet(6, 10, dst="2001:db8:9::1"))
    yield add("congestion on a path that cannot say so", "ecn-not-capable", inner, tos=3)
    marked, congested = packet(4, 20, tos=0xB9), packet(4, 20, tos=0xBB)
    yield add("congestion carried into IPv4", None, marked, tos=3, delivered=congested)
    marked, congested = packet(6, 20, tos=0xBA), packet(6, 20, tos=0xBB)
    yield add("congestion carried into IPv6", None, marked, tos=3, delivered=congested)
    later = bytearray(packet(4, 24))
    later[6:8] = b"\x00\x03"
    later = fix_v4(bytes(later))
    yield add("a later fragment", None, later, delivered=later)


def transport_cases(transform, seed):
    sa = Sa(transform, "transport", ("beyond", "noesn", "esn")[seed % 3], "raw")
    sequence = sa.top + 2
    for version in (4, 6):
        inner = packet(version, 21, "tcp", GATEWAYS, tos=0xB8)
        frame = sa.frame(sequence, inner, version)
        other = {4: "198.51.100.9", 6: "2001:db8:ffff::9"}[version]
        table = {version: (other, GATEWAYS[version][1])}
        stranger = sa.frame(sequence, packet(version, 21, "tcp", table), version)
        yield case(sa, f"v{version} from another address", sequence, stranger, drop="selector-mismatch")
        if transform.protocol == "ah":
            continue
        # ESP in transport mode does not cover the header: what arrives is what is delivered.
        at = 8 if version == 4 else 7
        yield case(sa, f"v{version} header changed under way", sequence, tidy(put(frame, at, 9)), tidy(put(inner, at, 9)))
        if version == 4:
            options = with_options(inner, bytes.fromhex("9404000001010100"))
            yield case(sa, "IPv4 options", sequence, sa.frame(sequence, options, 4), options)


def tidy(frame):
    return fix_v4(frame) if frame[0] >> 4 == 4 else frame


def with_options(inner, options):
    assert len(options) % 4 == 0
    header = put(inner[:20] + options, 0, 0x45 + len(options) // 4)
    return resize(header + inner[20:])


def with_extensions(inner, headers):
    """`headers`: (protocol, bytes behind the next-header field); they come first."""
    chain, protocols = b"", [kind for kind, _ in headers] + [inner[6]]
    for (_, data), following in zip(headers, protocols[1:]):
        assert (len(data) + 1) % 8 == 0
        chain += bytes([following]) + data
    return resize(put(inner[:40], 6, protocols[0]) + chain + inner[40:])


def ah_header_cases(transform, seed):
    """Mutable and immutable parts of what stands in front of AH (RFC 4302 §3.3.3.1, appendix A)."""
    # Router alert, recorded route, no operation, an option that nobody knows, no operation.
    options = bytes.fromhex("94040000" "070b080a00000100000000" "01" "1e06aabbccdd" "0101")
    alert_at, route_at, unknown_at = 20 + 2, 24 + 7, 36 + 2
    v4 = with_options(packet(4, 20, "udp", GATEWAYS), options)
    # Hop-by-hop: one option whose data may change under way, one whose may not; then a routing header, used up.
    hop = bytes([1]) + bytes.fromhex("3e04aabbccdd" "1e04aabbccdd" "0100")
    routing = bytes.fromhex("02000000000000") + bytes.fromhex("20010db8ffff0000000000000000abcd")
    v6 = with_extensions(packet(6, 20, "udp", GATEWAYS), [(0, hop), (43, routing)])
    for inner, version, changes in (
        (v4, 4, [("TTL", 8, True), ("DSCP", 1, True), ("a recorded route", route_at, True), ("an unknown option", unknown_at, True),
                 ("a router alert", alert_at, False), ("the identification", 4, False), ("the source", 15, False)]),
        (v6, 6, [("the hop limit", 7, True), ("the flow label", 3, True), ("an option that may change", 44, True),
                 ("an option that may not change", 50, False), ("the routing header", 75, False), ("the source", 23, False)]),
    ):
        sa = Sa(transform, "transport", ("noesn", "esn")[seed % 2])
        sequence = sa.top + 3
        frame = sa.ah(sequence, inner, version)
        verify_scapy(sa, sequence, frame)
        yield case(sa, f"v{version} with options", sequence, frame, inner)
        for name, at, mutable in changes:
            changed = tidy(put(frame, at, frame[at] ^ 4))
            if mutable:
                yield case(sa, f"v{version}, {name} changed", sequence, changed, tidy(put(inner, at, inner[at] ^ 4)))
            else:
                yield case(sa, f"v{version}, {name} changed", sequence, changed, drop="authentication-failed")
    sa = Sa(transform, "transport", "noesn")
    plain = packet(4, 20, "udp", GATEWAYS)
    no_df = put(plain, 6, 0x40)
    frame = sa.ah(sequence, tidy(no_df), 4)
    yield case(sa, "Don't Fragment cleared under way", sequence, tidy(put(frame, 6, 0)), tidy(put(no_df, 6, 0)))


def ah_invalid_cases(transform, seed):
    mode, version = ("tunnel", "transport")[seed % 2], (4, 6)[seed // 2 % 2]
    sa = Sa(transform, mode, ("noesn", "esn", "beyond")[seed % 3])
    sequence = sa.top + 1
    table = SITES if mode == "tunnel" else GATEWAYS
    inner = packet(version, 30, table=table)
    frame = sa.ah(sequence, inner, version)
    at = 20 if version == 4 else 40

    def add(name, drop, frame):
        return case(sa, name, sequence, frame, drop=drop)

    yield add("ICV changed", "authentication-failed", flip(frame, at + 12 + transform.iv_len))
    yield add("payload changed", "authentication-failed", flip(frame, -1))
    yield add("next header changed", "authentication-failed", flip(frame, at))
    yield add("reserved field changed", "authentication-failed", flip(frame, at + 2))
    yield add("sequence number changed", "authentication-failed", flip(frame, at + 11))
    if transform.iv_len:
        yield add("IV changed", "authentication-failed", flip(frame, at + 12 + 7))
    yield add("SPI changed", "unknown-spi", flip(frame, at + 4))
    yield add("AH length too small", "malformed-ah", put(frame, at + 1, frame[at + 1] - 1))
    yield add("AH longer than the packet", "malformed-ah", put(frame, at + 1, 255))
    yield add("header only", "malformed-ah", resize(frame[: at + 12]))
    # RFC 4302 §2.3: covered by the ICV, otherwise ignored.
    reserved = sa.ah(sequence, inner, version, reserved=0x0102)
    yield case(sa, "reserved field in use", sequence, reserved, inner)
    if transform.ah_len(6) > 12 + transform.iv_len + transform.icv_len:
        sa = Sa(transform, "transport", "noesn")
        inner = packet(6, 30, table=GATEWAYS)
        # RFC 4302 §3.3.3.2.1: the content of the padding is the sender's choice, and is covered.
        yield case(sa, "padding of the ICV in use", sequence, sa.ah(sequence, inner, 6, filler=0xA5), inner)


def document(transform, seed):
    cases = [*valid_cases(transform), *number_cases(transform)]
    if transform.protocol == "esp":
        cases += esp_invalid_cases(transform, seed)
    else:
        cases += [*ah_header_cases(transform, seed), *ah_invalid_cases(transform, seed)]
    cases += [*tunnel_cases(transform, seed), *transport_cases(transform, seed)]
    ciphers = "ace_ciphers.py" if transform.finalist else "pyca/cryptography"
    head = {
        "source": f"vectors/generate_packets.py (scapy {scapy.__version__} and {ciphers})",
        "transform": transform.name, "protocol": transform.protocol, "spi": f"{SPI:x}", "replay_window": WINDOW,
        "selectors": SELECTORS,
    }
    lines = [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(entry)}" for entry in cases)
    return "{\n" + "\n".join(lines) + '\n "cases": [\n' + rows + "\n ]\n}\n"


def main():
    check_primitives()
    directory = pathlib.Path(__file__).parent / "packets"
    directory.mkdir(exist_ok=True)
    for seed, transform in enumerate(all_transforms()):
        (directory / f"{transform.file}.json").write_text(document(transform, seed))


if __name__ == "__main__":
    main()
