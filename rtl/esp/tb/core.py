"""What benches of the ESP core share: configuration, policy entries and rows of the SADs as a host would write them."""

import ipaddress

from cipher_keys import CTR128, CTR256, GCM128, GCM256, key_row  # noqa: F401
from cocotb.triggers import RisingEdge

DISCARD, BYPASS, PROTECT, TO_HOST = range(4)
ANY = (0, 0)
PORTS_KNOWN, PROTOCOL_KNOWN, V6, TUNNELLED = (1 << bit for bit in (40, 41, 42, 43))


def low_words(value, count):
    return [value >> 32 * n & 0xFFFFFFFF for n in range(count)]


def key(local, remote, protocol=None, ports=None, v6=False, tunnelled=False):
    """A policy_key_t; addresses and ports as numbers."""
    value = remote << 64 | local << 192
    if v6:
        value |= V6
    if tunnelled:
        value |= TUNNELLED
    if protocol is not None:
        value |= PROTOCOL_KNOWN | protocol << 32
    if ports is not None:
        value |= PORTS_KNOWN | ports[0] << 16 | ports[1]
    return value


def entry(local, remote, protocol=None, tunnelled=None):
    """Value and care of an entry for prefixes, for example "10.0.0.0/8"."""
    local, remote = ipaddress.ip_network(local), ipaddress.ip_network(remote)
    v6 = local.version == 6
    value, care = V6 if v6 else 0, V6
    for network, shift in ((remote, 64), (local, 192)):
        value |= int(network.network_address) << shift
        care |= int(network.netmask) << shift
    if protocol is not None:
        value |= PROTOCOL_KNOWN | protocol << 32
        care |= PROTOCOL_KNOWN | 0xFF << 32
    if tunnelled is not None:
        value |= TUNNELLED if tunnelled else 0
        care |= TUNNELLED
    return value, care


class Config:
    """The configuration bus. Modules have row and word of one table; the core has whole addresses."""

    def __init__(self, dut):
        self.dut = dut
        self.whole = hasattr(dut, "cfg_addr_i")
        dut.cfg_valid_i.value = 0

    async def write(self, row, word, data, table=None):
        dut = self.dut
        if self.whole:
            dut.cfg_addr_i.value = table << 16 | row << 6 | word
        else:
            dut.cfg_row_i.value, dut.cfg_word_i.value = row, word
        dut.cfg_data_i.value, dut.cfg_valid_i.value = data & 0xFFFFFFFF, 1
        while True:
            await RisingEdge(dut.clk_i)
            if dut.cfg_ready_o.value == 1:
                break
        dut.cfg_valid_i.value = 0

    async def words(self, row, first, words, table=None):
        for at, word in enumerate(words):
            await self.write(row, first + at, word, table)

    async def policy(self, row, value_care, action, target=0, table=None, generation=1):
        value, care = value_care
        await self.words(row, 0, low_words(value, 10) + low_words(care, 10) + [action | target << 2 | generation << 12, 1], table)

    async def sa_out(self, row, table=None, **fields):
        """Keys are written apart; `sequence` is the last number used, `limit` the last that may be."""
        await self.write(row, 1, 0, table)
        await self.words(row, 20, low_words(fields.get("sequence", 0), 2) + low_words(fields.get("bytes", 0), 2), table)
        words = sa_out_words(**fields)
        await self.words(row, 0, [words[0], 0, *words[2:]], table)
        await self.write(row, 1, words[1], table)

    async def sa_in(self, row, table=None, **fields):
        await self.write(row, 1, 0, table)
        words = sa_in_words(**fields)
        await self.words(row, 0, [words[0], 0, *words[2:]], table)
        await self.write(row, 1, words[1], table)

    async def key(self, row, suite, material, table=None, generation=1):
        for word, value in key_row(suite, material, generation):
            await self.write(row, word, value, table)


ALL_ONES = (1 << 64) - 1


def sa_out_words(spi, local, remote, suite=GCM256, ports=None, esn=False, df=0, ecn_clear=False, dscp=None, ttl=64,
                 copy_label=False, mtu=0, iv_base=0, limit=ALL_ONES, soft=ALL_ONES, byte_limit=ALL_ONES, sequence=0,
                 bytes=0, generation=1):
    local, remote = ipaddress.ip_address(local), ipaddress.ip_address(remote)
    flags = 1 | suite << 1 | (ports is not None) << 3 | (local.version == 6) << 4 | esn << 5 | df << 6 | ecn_clear << 8
    flags |= (dscp is not None) << 9 | (dscp or 0) << 10 | ttl << 16 | copy_label << 24 | generation << 25
    local_port, remote_port = ports or (0, 0)
    return [spi, flags, mtu, local_port << 16 | remote_port, *low_words(int(local), 4), *low_words(int(remote), 4),
            *low_words(iv_base, 2), *low_words(limit, 2), *low_words(soft, 2), *low_words(byte_limit, 2)]


def sa_in_words(spi, suite=GCM256, esn=False, dscp_from_outer=False, no_replay_check=False, group=0,
                byte_limit=ALL_ONES, top=0, generation=1):
    flags = 1 | suite << 1 | esn << 5 | dscp_from_outer << 7 | no_replay_check << 8 | generation << 9 | group << 16
    return [spi, flags, *low_words(byte_limit, 2), *low_words(top, 2)]


async def snapshot(dut, row):
    """What an SAD tells of a row: bytes, number, and inbound the window, as one number."""
    dut.snap_row_i.value, dut.snap_valid_i.value = row, 1
    for _ in range(100):
        await RisingEdge(dut.clk_i)
        if dut.snap_ready_o.value == 1:
            dut.snap_valid_i.value = 0
            return int(dut.snap_o.value)
    raise AssertionError("no snapshot")
