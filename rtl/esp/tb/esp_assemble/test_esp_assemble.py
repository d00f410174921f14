"""esp_assemble: headers, sums and places of everything as scapy builds the packet, for any cipher's output."""

import ipaddress
import random
import struct

import bench
import cocotb
from cocotb.triggers import RisingEdge
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from streams import FrameSink, Source, beats, until
from structs import CIPHER_TAG, OUTER, SEAL_JOB

ICV = 16


def number(address):
    return int(ipaddress.ip_address(address))


class Packet:
    """A random job with a body and an ICV, and what is to leave."""

    ok = True

    def __init__(self, source, inner=None):
        self.inner_bytes = inner or source.choice((20, 21, 22, 23, 36, source.randrange(20, 200), source.randrange(20, 1400)))
        v6, self.udp = source.random() < 0.5, source.random() < 0.5
        self.row, spi, seq, iv = source.getrandbits(10), source.getrandbits(32), source.getrandbits(64), source.getrandbits(64)
        ports = source.getrandbits(16), source.getrandbits(16)
        tos, ttl, label, ident = source.getrandbits(8), source.getrandbits(8), source.getrandbits(20), source.getrandbits(16)
        df = source.randrange(2)
        ends = ("2001:db8::1:2", "2001:db8::ffff") if v6 else ("192.0.2.1", "198.51.100.77")
        # Bodies of zeros and of ones find carries that random ones seldom do.
        fill = source.choice((None, None, 0, 0xFF))
        length = (self.inner_bytes + 5) // 4 * 4
        self.body = source.randbytes(length) if fill is None else bytes([fill]) * length
        self.icv = source.randbytes(ICV)
        self.job = SEAL_JOB.pack(
            row=self.row, spi=spi, seq=seq, iv=iv, inner_bytes=self.inner_bytes, v6=v6, udp=self.udp, dont_fragment=df, tos=tos,
            ttl=ttl, flow_label=label, identification=ident, local_port=ports[0], remote_port=ports[1],
            local_address=number(ends[0]), remote_address=number(ends[1]))  # fmt: skip
        esp = struct.pack(">IIQ", spi, seq & 0xFFFFFFFF, iv) + self.body + self.icv
        upper = UDP(sport=ports[0], dport=ports[1]) / Raw(esp) if self.udp else Raw(esp)
        protocol = 17 if self.udp else 50
        if v6:
            outer = IPv6(src=ends[0], dst=ends[1], tc=tos, hlim=ttl, fl=label, nh=protocol) / upper
        else:
            if self.udp:
                upper.chksum = 0
            outer = IP(src=ends[0], dst=ends[1], tos=tos, ttl=ttl, id=ident, flags="DF" if df else 0, proto=protocol) / upper
        self.frame = bytes(outer)

    def make_sum_zero(self):
        """Changes the ICV's last bytes so that the UDP checksum over IPv6 becomes 0, which is sent as 0xffff."""
        before = struct.unpack(">H", self.frame[46:48])[0]
        word = struct.unpack(">H", self.icv[-2:])[0] + before
        self.icv = self.icv[:-2] + struct.pack(">H", (word & 0xFFFF) + (word >> 16))
        self.frame = self.frame[:46] + b"\xff\xff" + self.frame[48:-2] + self.icv[-2:]


def connect(dut, idle, back_pressure):
    clk = dut.clk_i
    return (
        Source(clk, dut.outer_valid_i, dut.outer_ready_o, dut.outer_i, bench.pauses(idle, 1)),
        # The tap has no handshake: what goes into the FIFO that the body comes from.
        Source(clk, dut.tap_valid_i, dut.rst_ni, dut.tap_i, bench.pauses(idle, 2)),
        Source(clk, dut.body_valid_i, dut.body_ready_o, dut.body_i, bench.pauses(idle, 3)),
        Source(clk, dut.tag_valid_i, dut.tag_ready_o, dut.tag_i, bench.pauses(idle, 4)),
        FrameSink(clk, dut.valid_o, dut.ready_i, [dut.beat_o, dut.user_o], bench.pauses(back_pressure, 5)),
    )


async def exchange(dut, packets, idle=0.0, back_pressure=0.0):
    """As the cipher does: a tag is there once its packet's last beat went past the tap, and the body not before the tap."""
    ends = outer, tap, body, tag, sink = connect(dut, idle, back_pressure)
    tapped, drops = 0, []

    async def watch():
        while True:
            await RisingEdge(dut.clk_i)
            if dut.dropped_o.value == 1:
                drops.append(len(sink.frames))

    watching = cocotb.start_soon(watch())
    for at, packet in enumerate(packets):
        number = at % 64
        outer.queue.append(OUTER.pack(id=number, job=packet.job))
        tap.frame(packet.body)
        tapped += -(-len(packet.body) // 16)
        # No more packets between encapsulation and here than there are places.
        await until(dut.clk_i, lambda: tap.sent == tapped and len(sink.frames) + len(drops) >= at - 10, 20000)
        body.frame(packet.body)
        tag.queue.append(CIPHER_TAG.pack(id=number, icv=int.from_bytes(packet.icv, "little"), ok=packet.ok))
    await until(dut.clk_i, lambda: len(sink.frames) + len(drops) == len(packets), 20000)
    left = [packet for packet in packets if packet.ok]
    assert len(drops) == len(packets) - len(left)
    for (frame, user), packet in zip(sink.frames, left, strict=True):
        assert frame == packet.frame, f"\n{frame.hex()} is not\n{packet.frame.hex()}"
        assert user == packet.row << 7 | 1 << 6
    watching.cancel()
    for end in ends:
        end.stop()


@cocotb.test()
async def every_length(dut):
    await bench.start(dut)
    source = random.Random(1)
    for _ in range(3):  # every kind of outer header meets most lengths
        await exchange(dut, [Packet(source, inner) for inner in range(20, 53)])


@cocotb.test()
async def a_sum_of_zero(dut):
    await bench.start(dut)
    source = random.Random(5)
    packets = [packet for packet in (Packet(source, source.randrange(20, 60)) for _ in range(60)) if packet.udp and packet.frame[0] >> 4 == 6]
    for packet in packets:
        packet.make_sum_zero()
    await exchange(dut, packets)


@cocotb.test()
async def idle_cycles_and_back_pressure(dut):
    await bench.start(dut)
    source = random.Random(2)
    for idle, back_pressure in ((0.5, 0), (0, 0.5), (0.3, 0.3), (0.05, 0.8)):
        await exchange(dut, [Packet(source, source.randrange(20, 200)) for _ in range(30)], idle, back_pressure)
    await exchange(dut, [Packet(source) for _ in range(30)])


@cocotb.test()
async def what_is_not_ok_does_not_leave(dut):
    await bench.start(dut)
    source = random.Random(4)
    for idle, back_pressure in ((0, 0), (0.3, 0.3), (0, 0.8)):
        packets = [Packet(source, source.randrange(20, 200)) for _ in range(40)]
        for packet in packets:
            packet.ok = source.random() < 0.5
        await exchange(dut, packets, idle, back_pressure)


@cocotb.test()
async def reset_in_mid_frame(dut):
    await bench.start(dut)
    source = random.Random(3)
    for words in (2, 6, 12):
        ends = outer, tap, body, tag, sink = connect(dut, 0, 0)
        packet = Packet(source, 180)
        outer.queue.append(OUTER.pack(id=0, job=packet.job))
        tap.frame(packet.body)
        await until(dut.clk_i, lambda: not tap.queue, 100)
        tag.queue.append(CIPHER_TAG.pack(icv=1, ok=1))
        body.queue.extend(list(beats(packet.body)))
        await until(dut.clk_i, lambda: len(sink.words) >= words, 100)
        for end in ends:
            end.stop()
        await bench.reset(dut)
        await exchange(dut, [Packet(source, source.randrange(20, 100)) for _ in range(12)], 0.1, 0.1)


def test_esp_assemble():
    bench.run("esp_assemble")
