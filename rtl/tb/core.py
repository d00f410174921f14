"""What benches of the ESP core share: configuration, policy entries and rows of the SADs as a host would write them."""

import ipaddress

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

    async def policy(self, row, value_care, action, target=0, table=None):
        value, care = value_care
        await self.words(row, 0, low_words(value, 10) + low_words(care, 10) + [action | target << 2, 1], table)
