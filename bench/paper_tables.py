"""The tables of the five papers as printed, their errata, and the formulas that their figures come from.

`papers.py` prints them beside ours; the benches of one paper take their rows from here.
"""

from __future__ import annotations

from dataclasses import dataclass


def mbit_s(size: int, cycles: float, mhz: float) -> float:
    """The formula of Gateway 2.0 and of the Zynq paper: bits of the inner packet ÷ cycles × clock."""
    return 8 * size / cycles * mhz


@dataclass(frozen=True)
class Paper:
    key: str
    name: str
    title: str
    authors: str


PAPERS = (
    Paper("vpn-ab", "VPN-AB", "A 10 Giga VPN Accelerator Board for Trust Channel Security System", "Kim, Yoo and Chung"),
    Paper("gateway", "Gateway 2.0", "High-performance FPGA Architecture for Data Streams Processing on Example of IPsec Gateway",
          "Korona, Skowron, Trzepinski and Rawski"),
    Paper("zynq", "Zynq core", "Fast and Low-latency IPsec core with NAT traversal on Zynq", ""),
    Paper("ace", "ACE", "An Adaptive Cryptographic Engine for IPSec Architectures", "Dandalis, Prasanna and Rolim"),
    Paper("pipsea", "PIPSEA", "PIPSEA: A Practical IPsec Gateway on Embedded APUs", "Park, Jung, Jo, Lee and Lee"),
)  # fmt: skip


# VPN-AB, section IV.B, table II: Gbit/s and the load that the generator offered, in percent. A size of "64-1400" is
# the paper's "Random [1400-64]".
VPN_AB_SIZES = ("64-1400", "1400", "1024", "512", "256", "128", "64")
VPN_AB_LOADS = (90, 90, 95, 90, 90, 55, 55)
VPN_AB = {
    "3DES/HMAC_MD5_96": (13.782, 14.090, 15.645, 12.477, 7.472, 5.265, 3.573),
    "AES_CBC_256/HMAC_SHA1_96": (14.803, 14.865, 11.405, 12.722, 8.489, 5.578, 3.880),
}
VPN_AB_NAMES = {"3DES/HMAC_MD5_96": "3DES-HMAC-MD5", "AES_CBC_256/HMAC_SHA1_96": "AES(256)-HMAC-SHA1"}
VPN_AB_ERRATA = {("AES_CBC_256/HMAC_SHA1_96", "1024"): "less than at 512 bytes (12.722), which the paper does not explain"}
# Section III.D, table I: watts.
VPN_AB_POWER = (("1.0 V", 9.0), ("2.5 V", 0.7), ("PCI 3.3 V", 0.8), ("SPI 3.3 V", 2.0), ("in all", 12.5))
# Section III.B: what the maker says of the security processor.
VPN_AB_MAIN_MODES, VPN_AB_RANDOM_MBIT_S = 10_000, 320
# Table III, the column of VPN-AB.
VPN_AB_GBIT_S, VPN_AB_TUNNELS = 15.6, 10_000


@dataclass
class Configuration:
    """The numbers of units for policy, SAD, ciphering and HMAC. Encapsulation has as many units as SAD access."""

    cipher: str
    policies: int
    sads: int
    ciphers: int
    hmacs: int
    clock_mhz: float
    logic_percent: int  # percent of a Stratix V, in the paper
    paper: dict[int, tuple[float, ...]]  # packet size -> Mbit/s for each stream

    @property
    def name(self) -> str:
        return f"{self.policies}/{self.sads}/{self.ciphers}/{self.hmacs}"


# Gateway 2.0, section V, tables II to V and VI to IX.
STREAMS = (16, 32, 64, 128)
SIZES = (64, 240, 1500)
CONFIGURATIONS = (
    Configuration("DES-ECB", 4, 4, 4, 4, 102.79, 16, {
        64: (1137.91, 1253.06, 1319.84, 1355.97), 240: (2363.55, 2526.17, 2616.16, 2663.61),
        1500: (3239.63, 3403.22, 3478.30, 3526.33)}),
    Configuration("DES-ECB", 4, 4, 4, 8, 104.04, 20, {
        64: (1691.06, 2029.28, 2254.75, 2387.38), 240: (3699.20, 4342.54, 4756.11, 4979.33),
        1500: (6139.47, 7168.50, 7732.62, 8081.76)}),
    Configuration("DES-ECB", 8, 8, 8, 16, 100.65, 38, {
        64: (1940.06, 2780.86, 3550.16, 4120.05), 240: (4218.24, 5784.79, 7103.89, 8018.07),
        1500: (6185.03, 7975.65, 9291.33, 10227.44)}),
    Configuration("AES-CBC", 4, 4, 6, 4, 94.07, 27, {
        64: (830.411, 973.01, 1064.39, 1116.84), 240: (1711.98, 1990.24, 2166.29, 2266.53),
        1500: (2598.65, 2755.95, 3032.10, 3076.89)}),
    Configuration("AES-CBC", 8, 8, 12, 8, 97.98, 34, {
        64: (1254.14, 1658.37, 1976.98, 2187.06), 240: (2537.90, 3355.57, 4056.53, 4424.76),
        1500: (3362.10, 4580.40, 4961.40, 5518.80)}),
)  # fmt: skip
# The tables with logic and clock, then those for each packet size.
GATEWAY_TABLES = {"DES-ECB": ("II", ("III", "IV", "V")), "AES-CBC": ("VI", ("VII", "VIII", "IX"))}
# Section III.B, table I, the prototype, with one unit for each task: bytes, cycles, and Mbit/s as printed, at 86.72 MHz
# on a Cyclone II.
PROTOTYPE, PROTOTYPE_MHZ = ((64, 520, 85.39), (240, 784, 209.70), (1500, 2682, 437.44)), 86.72
# What the prototype's figures have to be by the paper's text or its formula: cycles and Mbit/s.
PROTOTYPE_CORRECTED = {240: (794, 209.70), 1500: (2682, 388.01)}
PROTOTYPE_ERRATA = {
    240: "784 cycles give 212.37 Mbit/s; the text has 794, which give the printed 209.70",
    1500: "2682 cycles give 388.01 Mbit/s, not 437.44",
}


GCM, CTR = 0, 2  # the values of esp_pkg::suite_e
SUITES = {GCM: "AES-256-GCM-16", CTR: "AES-256-CTR + HMAC-SHA-256"}
ZYNQ_MHZ = {GCM: 185, CTR: 150}  # table 4


@dataclass(frozen=True)
class ZynqRow:
    """A row of the Zynq paper's tables 5 to 8, section 6."""

    table: int
    suite: int
    bytes: int
    udp: bool
    cycles: int
    gbit_s: float


ZYNQ = (
    ZynqRow(5, CTR, 522, False, 429, 1.460), ZynqRow(5, GCM, 522, False, 160, 4.828),
    ZynqRow(6, CTR, 1446, False, 926, 1.873), ZynqRow(6, GCM, 1446, False, 276, 7.753),
    ZynqRow(7, CTR, 514, True, 467, 1.320), ZynqRow(7, GCM, 514, True, 160, 4.754),
    ZynqRow(8, CTR, 1438, True, 1022, 1.688), ZynqRow(8, GCM, 1438, True, 372, 5.721),
)  # fmt: skip


@dataclass(frozen=True)
class ZynqPart:
    """A row of the Zynq paper's table 2, section 4, and our module for it."""

    name: str
    mhz: int
    slices: int
    gbit_s: float
    paper_cycles: int  # for the bits of a block
    module: str
    bits: int  # bits that the module processes in `cycles` cycles
    cycles: int


ZYNQ_PARTS = (
    ZynqPart("AES-256", 234, 5526, 29, 1, "aes_pipe", 128, 1), ZynqPart("SHA-256", 154, 1039, 2.464, 32, "sha256_core", 512, 33),
    ZynqPart("GHASH", 306, 397, 19, 2, "ghash", 128, 1),
)  # fmt: skip
ZYNQ_LUTS = 41455  # table 3
# Table 1: the fields of ESP. The sizes are bits, but for the padding.
ZYNQ_FIELDS = (
    ("Security parameter index", "32-bit"), ("Sequence number", "32-bit"), ("IV", "64-bit"), ("Payload", "variable"),
    ("Padding", "0-255 bytes"), ("Padding length", "8-bit"), ("Next header", "8-bit"), ("ICV", "128-bit"),
)  # fmt: skip
ZYNQ_NAT_ERRATUM = (
    "Erratum: the paper calls the loss by NAT traversal 26 %. By its own tables 8 bytes of UDP header cost AES-GCM 0 cycles at 514 "
    "bytes and 96 at 1438, which no header explains."
)


@dataclass(frozen=True)
class Cipher:
    """An AES candidate in ACE's tables: microseconds and Mbit/s of the paper's software and of its FPGA, the latency in
    block times and the speed-up as printed; then the bits of its bitstream and their redundancy."""

    name: str
    latency_us: tuple[float, float]
    latency_blocks: tuple[float, float]
    mbit_s: tuple[float, float]
    speed_up: float
    size: int
    redundancy: float

    def block_us(self, way: int) -> float:
        return 128 / self.mbit_s[way]


# Section 4.2, tables 1 and 2; section 5.2, table 3.
CIPHERS = (
    Cipher("MARS", (38.11, 1.96), (7.91, 3.12), (26.56, 101.88), 3.83, 3833655, 0.6890),
    Cipher("RC6", (25.07, 0.17), (5.93, 0.15), (30.29, 112.87), 3.72, 2705363, 0.4534),
    Cipher("Rijndael", (33.93, 0.07), (8.39, 0.20), (31.64, 353.00), 11.15, 3833655, 0.7623),
    Cipher("Serpent", (56.99, 0.08), (3.33, 0.09), (7.48, 148.95), 19.91, 2705363, 0.6296),
    Cipher("Twofish", (63.99, 0.18), (13.15, 0.25), (26.31, 173.06), 6.58, 6510917, 0.7163),
)  # fmt: skip
ACE_LATENCY_ERRATA = {"MARS": "1.96 µs are 1.56 block times at 101.88 Mbit/s, not 3.12"}
ACE_MARS_BLOCKS = 1.56


@dataclass(frozen=True)
class Compressed:
    """A row of ACE's table 4, section 5.2: bits of index and dictionary, and the ratio in percent. The width of a codeword,
    the codewords and the phrases are what these bits factor into, with 8 bits for a phrase's symbol."""

    cipher: str
    phase: str
    index: int
    dictionary: int
    percent: float
    width: int
    codewords: int
    phrases: int


COMPRESSED = (
    Compressed("MARS", "LZW", 2641500, 3822130, 168.60, 18, 146750, 147005),
    Compressed("MARS", "I", 2348000, 1125128, 90.59, 16, 146750, 46880),
    Compressed("MARS", "II", 2850360, 446269, 85.99, 15, 190024, 19403),
    Compressed("RC6", "LZW", 1226839, 1810550, 110.43, 17, 72167, 72422),
    Compressed("RC6", "I", 1082505, 678983, 65.11, 15, 72167, 29521),
    Compressed("RC6", "II", 1254610, 371558, 60.11, 14, 89615, 16889),
    Compressed("Rijndael", "LZW", 2922732, 4228354, 186.53, 18, 162374, 162629),
    Compressed("Rijndael", "I", 2597984, 1162128, 98.08, 16, 162374, 48422),
    Compressed("Rijndael", "II", 3189570, 395830, 93.52, 15, 212638, 17210),
    Compressed("Serpent", "LZW", 1703451, 2511450, 153.25, 17, 100203, 100458),
    Compressed("Serpent", "I", 1603248, 830304, 89.95, 16, 100203, 34596),
    Compressed("Serpent", "II", 1794240, 336732, 78.76, 14, 128160, 15306),
    Compressed("Twofish", "LZW", 4663980, 6743490, 175.20, 18, 259110, 259365),
    Compressed("Twofish", "I", 4404870, 1938400, 97.42, 17, 259110, 77536),
    Compressed("Twofish", "II", 5049690, 664033, 87.75, 15, 336646, 28871),
)
# The bits or the percentage that the other figures of the row give.
COMPRESSED_CORRECTED = {("MARS", "I"): 1125120, ("RC6", "LZW"): 112.27, ("RC6", "II"): 64.05, ("Serpent", "LZW"): 155.80}
COMPRESSED_ERRATA = {
    ("MARS", "I"): "the dictionary is 46880 phrases of 24 bits, 1125120",
    ("RC6", "LZW"): "index and dictionary give 112.27 %; 110.43 % is of a size of 2750363",
    ("RC6", "II"): "16889 phrases need codewords of 15 bits, not 14: 64.05 %",
    ("Serpent", "LZW"): "index and dictionary give 155.80 %; 153.25 % is of a size of 2750363",
}


@dataclass(frozen=True)
class Headline:
    """A headline of PIPSEA (abstract and introduction), and the row of the GPU bench that is nearest."""

    packets: str
    suite: str
    gbit_s: float
    latency_ms: float
    row: str


PIPSEA = (
    Headline("1024 bytes", "AES-CBC + HMAC-SHA1", 10.36, 2.79, "R1"),
    Headline("random lengths", "AES-CBC + HMAC-SHA1", 10.66, 3.71, "R2"),
    Headline("1280 bytes", "a random mix of six", 17.42, 3.92, "R3"),
)
