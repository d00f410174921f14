"""Measures two gateways with the GPU engine: see gpu.py."""

import statistics
import sys
import tempfile
from pathlib import Path

from setups import EsplanadePair


class Pair(EsplanadePair):
    """Two gateways with this engine."""

    engine, device = "cpu", ""

    def make(self, end, space):
        made = super().make(end, space)
        made.gateway["engine"] = self.engine
        if self.engine != "cpu":
            made.gateway["gpu"] = {"device": self.device, "residue": "yes"}
        return made


def gateways(device: str, engines: list[str], seconds: float, rounds: int) -> list[dict]:
    """TCP, and small UDP at a low load, through two gateways."""
    rows = []
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(Path(folder))
            pair.engine, pair.device = engine, device
            try:
                pair.start()
                ends = [pair.iperf3(seconds) for _ in range(rounds)]
                tcp = statistics.median(end["sum_received"]["bits_per_second"] / 1e9 for end in ends)
                rows.append({"part": "gateway", "engine": engine, "tcp_gbits": round(tcp, 3)})
                print(rows[-1], file=sys.stderr)
            finally:
                pair.stop()
    return rows
