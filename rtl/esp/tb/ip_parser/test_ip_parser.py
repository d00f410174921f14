"""ip_parser against scapy, and against every outer and inner packet of vectors/packets."""

import ipaddress
import json
import random
import struct

import bench
import cocotb
from cocotb.triggers import RisingEdge
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
                                IPv6ExtHdrRouting, PadN)
from scapy.layers.sctp import SCTP
from scapy.packet import Raw
from streams import beats

FIELDS = (  # of parse_t, from the top
    ("malformed", 1), ("v6", 1), ("dont_fragment", 1), ("fragment", 1), ("protocol_known", 1), ("ports_known", 1),
    ("tos", 8), ("flow_label", 20), ("bytes", 16), ("protocol", 8), ("upper", 16), ("source_port", 16),
    ("destination_port", 16), ("source", 128), ("destination", 128), ("front", 192))
EXTENSIONS = (IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, IPv6ExtHdrFragment, IPv6ExtHdrDestOpt)


def unpack(value):
    result = {}
    for name, width in reversed(FIELDS):
        result[name] = value & (1 << width) - 1
        value >>= width
    return result


def expect(frame):
    """What scapy reads. None: malformed."""
    if not frame or frame[0] >> 4 not in (4, 6):
        return None
    version = frame[0] >> 4
    if version == 4:
        if len(frame) < 20:
            return None
        packet = IP(frame)
        length = struct.unpack_from(">H", frame, 2)[0]
        header = packet.ihl * 4
        if header < 20 or length < header or length > len(frame):
            return None
        total = sum(struct.unpack(f">{header // 2}H", frame[:header]))
        if total % 0xFFFF or not total:
            return None
        fragment, later = packet.flags.MF or packet.frag > 0, packet.frag > 0
        result = {"v6": 0, "dont_fragment": int(packet.flags.DF), "fragment": int(fragment), "tos": packet.tos,
                  "flow_label": 0, "protocol": packet.proto, "upper": header, "protocol_known": 1}
        addresses = packet.src, packet.dst
    else:
        if len(frame) < 40 or 40 + struct.unpack_from(">H", frame, 4)[0] > len(frame):
            return None
        packet = IPv6(frame)
        length, at, protocol = 40 + packet.plen, 40, packet.nh
        fragment = later = False
        headers = 0
        while protocol in (0, 43, 44, 60) and not later:
            headers += 1
            if at + 2 > length or headers > 15:
                return None
            size = 8 if protocol == 44 else 8 + 8 * frame[at + 1]
            if at + size > length:
                return None
            if protocol == 44:
                fragment, later = True, struct.unpack_from(">H", frame, at + 2)[0] & 0xFFF8 != 0
            protocol, at = frame[at], at + size
        result = {"v6": 1, "dont_fragment": 1, "fragment": int(fragment), "tos": packet.tc, "flow_label": packet.fl,
                  "protocol": protocol, "upper": at, "protocol_known": int(not (later and protocol in (0, 43, 44, 60)))}
        addresses = packet.src, packet.dst
    result["source"], result["destination"] = (int(ipaddress.ip_address(a)) for a in addresses)
    result["bytes"], result["malformed"] = length, 0
    upper = frame[result["upper"] : length]
    ports = None
    if not later:
        if result["protocol"] in (6, 17, 33, 132, 136) and len(upper) >= 4:
            ports = struct.unpack_from(">HH", upper)
        elif result["protocol"] in (1, 58) and len(upper) >= 2:
            ports = struct.unpack_from(">H", upper) * 2
    result["ports_known"] = int(ports is not None)
    if ports:
        result["source_port"], result["destination_port"] = ports
    upper = upper[:24]
    result["front"] = upper, len(upper)
    return result


async def check(dut, frames, idle=0.0):
    """Sends frames back to back, or with idle cycles, and compares each answer."""
    expected = [(expect(frame), frame) for frame in frames]
    pause = bench.pauses(idle, 3)
    words = [word for frame in frames for word in beats(frame)]
    at = 0
    dut.valid_i.value = 0
    for _ in range(20 * len(words) + 100):
        if not expected:
            return
        if at < len(words) and not next(pause):
            dut.valid_i.value, dut.beat_i.value = 1, words[at]
            at += 1
        else:
            dut.valid_i.value = 0
        await RisingEdge(dut.clk_i)
        if dut.done_o.value == 1:
            want, frame = expected.pop(0)
            got = unpack(int(dut.parse_o.value))
            if want is None:
                assert got["malformed"] == 1, frame.hex()
                continue
            front, length = want.pop("front")
            assert got["front"].to_bytes(24, "big")[:length] == front, frame.hex()
            for name, value in want.items():
                assert got[name] == value, f"{name}: {got[name]:#x}, should be {value:#x}: {frame.hex()}"
    raise AssertionError(f"{len(expected)} answers are missing")


def packet(source):
    """A random packet, mostly sound."""
    def upper():
        ports = {"sport": source.randrange(65536), "dport": source.randrange(65536)}
        return source.choice((TCP(**ports), UDP(**ports), ICMP(type=source.randrange(256)), SCTP(**ports), Raw(b"")))

    payload = Raw(source.randbytes(source.choice((0, 1, 3, 20, source.randrange(150)))))
    if source.random() < 0.5:
        options = [IPOption_NOP()] * source.choice((0, 0, 0, 4, 12, 40))
        frag = source.choice((0, 0, 0, source.randrange(0x2000)))
        # Mostly the right one; its header's sum is right in any case.
        length = source.randrange(80) if source.random() < 0.1 else None
        whole = IP(len=length, tos=source.randrange(256), options=options,
                   id=source.randrange(65536), ttl=source.randrange(256), frag=frag, flags=source.randrange(4))
        whole.src, whole.dst = (".".join(str(b) for b in source.randbytes(4)) for _ in range(2))
        frame = bytes(whole / upper() / payload)
    else:
        whole = IPv6(tc=source.randrange(256), fl=source.randrange(1 << 20), hlim=source.randrange(256))
        for _ in range(source.choice((0, 0, 1, 2, 3, 14, 15, 16))):
            kind = source.choice(EXTENSIONS)
            if kind is IPv6ExtHdrFragment:
                whole /= kind(offset=source.choice((0, 0, 0, source.randrange(8192))), m=source.randrange(2), res1=source.choice((0, source.randrange(256))))
            elif kind is IPv6ExtHdrRouting:
                whole /= kind(addresses=["2001:db8::1"] * source.randrange(3))
            else:
                whole /= kind(options=[PadN(optdata=bytes(source.choice((0, 4, 12, 28))))])
        frame = bytearray(bytes(whole / (ICMPv6EchoRequest() if source.random() < 0.2 else upper()) / payload))
        frame[8:40] = source.randbytes(32)
    frame = bytearray(frame)
    kind = source.random()
    if kind < 0.1:
        frame[source.randrange(min(len(frame), 48))] ^= 1 << source.randrange(8)
    elif kind < 0.2:
        frame = frame[: source.randrange(1, len(frame) + 1)]
    elif kind < 0.3:
        frame += source.randbytes(source.randrange(40))  # behind the packet's end
    return bytes(frame)


@cocotb.test()
async def random_packets(dut):
    await bench.start(dut)
    source = random.Random(1)
    await check(dut, [packet(source) for _ in range(600)])
    await check(dut, [packet(source) for _ in range(200)], idle=0.4)


@cocotb.test()
async def vectors(dut):
    await bench.start(dut)
    frames = []
    for file in sorted((bench.VECTORS / "packets").glob("esp-aes-gcm-16-*.json")):
        for case in json.loads(file.read_text())["cases"]:
            frames += [bytes.fromhex(case[name]) for name in ("frame", "delivered") if case[name]]
    await check(dut, frames)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    source = random.Random(2)
    for cut in range(1, 5):
        for word in list(beats(bytes.fromhex("60000000") + bytes(200)))[:cut]:
            dut.valid_i.value, dut.beat_i.value = 1, word
            await RisingEdge(dut.clk_i)
        dut.valid_i.value = 0
        await bench.reset(dut)
        await check(dut, [packet(source) for _ in range(20)], idle=0.2)


def test_ip_parser():
    bench.run("ip_parser")
