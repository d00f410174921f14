"""Packed structures of esp_pkg and sections_pkg as numbers: the first field lies in the highest bits."""

from types import SimpleNamespace


class Struct:
    def __init__(self, **widths):
        self.widths = widths
        self.bits = sum(widths.values())

    def pack(self, **values):
        number = 0
        for name, width in self.widths.items():
            value = int(values.pop(name, 0))
            assert 0 <= value < 1 << width, name
            number = number << width | value
        assert not values, f"no such field: {list(values)}"
        return number

    def unpack(self, number):
        fields = {}
        for name, width in reversed(self.widths.items()):
            fields[name] = number & (1 << width) - 1
            number >>= width
        return SimpleNamespace(**fields)


CIPHER_CMD = Struct(id=6, suite=2, row=10, generation=7, iv=64, spi=32, seq_hi=32, seq_lo=32, esn=1, len=16)
CIPHER_TAG = Struct(id=6, icv=128, ok=1)
SEAL_ASK = Struct(row=10, generation=7, v6=1, dont_fragment=1, tos=8, flow_label=20, bytes=16)
SEAL_JOB = Struct(
    suite=2, row=10, generation=7, esn=1, spi=32, seq=64, iv=64, inner_bytes=16, inner_v6=1, v6=1, udp=1, dont_fragment=1,
    tos=8, ttl=8, flow_label=20, identification=16, local_port=16, remote_port=16, local_address=128, remote_address=128,
)  # fmt: skip
OUTER = Struct(id=6, job=SEAL_JOB.bits)
OPEN_ASK = Struct(spi=32, seq_lo=32, too_short=1)
OPEN_SA = Struct(suite=2, row=10, generation=7, group=10, esn=1, dscp=1, seq=64)
OPEN_JOB = Struct(sa=OPEN_SA.bits, spi=32, iv=64, tos=8, shift=2, bytes=16)
OPENED = Struct(id=6, sa=OPEN_SA.bits, tos=8)

FRAME_HEAD = Struct(port=4, bytes=16)
POLICY_HEAD = Struct(port=4, sad=3, generation=7, row=10, bytes=16)
SA = Struct(encap=3, cipher=3, auth=3, wide=1)
SAD_HEAD = Struct(port=4, bytes=16, sa=SA.bits)
ENCAP_HEAD = Struct(port=4, cipher=3, auth=3, wide=1)
CIPHER_HEAD = Struct(port=4, auth=3)
AUTH_HEAD = Struct(port=4, lead=1)
SECTION_POLICY = Struct(
    valid=1, action=2, generation=7, row=10, destination_port=16, source_port=16, protocol=8, destination=32, source=32,
)  # fmt: skip
