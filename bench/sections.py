"""Tables II to IX of Gateway 2.0: the paper's throughput, and ours in cycles and at the paper's clock. Ours is
simulated, not timed.

Every packet that comes out is opened and checked. Writes a record with a table and a picture.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import random
import sys
from pathlib import Path

import clocks
from commit import ROOT, commit
from designs import SIMULATED, digests
from machine import RECORDS
from paper_tables import CONFIGURATIONS, PROTOTYPE, PROTOTYPE_MHZ, SIZES, STREAMS, Configuration, mbit_s

FLOWS = 8  # the number of SAs too; the packets of a stream use the SAs in turn


@functools.cache
def logic_record(cipher: str, units: str) -> dict[str, object] | None:
    """The newest record of a configuration's synthesis with one port (`rtl/syn/ecp5.py --name`)."""
    return clocks.synthesised(f"esp_sections-{cipher[:3].lower()}-{units.replace('/', '-')}")


def parameters(configuration: Configuration, ports: int) -> dict[str, int]:
    aes = configuration.cipher == "AES-CBC"
    return {
        "Ports": ports, "Policies": configuration.policies, "Sads": configuration.sads, "Encaps": configuration.sads, "Hmacs": configuration.hmacs,
        "Aes": configuration.ciphers if aes else 0, "Des": 0 if aes else configuration.ciphers, "Rows": 64,
    }  # fmt: skip


NOTES = (
    "Erratum, table I (the prototype): its 240-byte row needs 794 cycles, as the text says, not 784; its 1500-byte row "
    "gives 388.0 Mbit/s at 2682 cycles, not 437.44. Tables II to IX give no cycles; theirs are computed from Mbit/s and clock.",
    "Packets are inner packets. Cycles are from the first beat that goes in to the last that comes out, all packets "
    "waiting at the entries at the start. The paper does not say how packets came in; a port takes and gives 128 bits a "
    "cycle, so that one port is full with 8/8/8/16 and 1500 bytes (12.9 Gbit/s at 100.65 MHz).",
    "The SAD has 64 rows in all of this. Its clock is twice the others' in the paper's configurations, and theirs in the smaller ones, as it was placed and routed. "
    "AES has 128-bit keys. DES is in ECB mode as in the paper, which nobody should use.",
)


@functools.cache
def simulator():
    """The model of the sections, and their simulation. The page of the papers needs neither."""
    sys.path[:0] = [str(ROOT / "rtl" / place) for place in ("tb", "crypto/tb", "sections/tb")]
    import sections_model

    return sections_model


class Measurement:
    """A set of parameters, compiled."""

    def __init__(self, configuration: Configuration, ports: int):
        self.configuration, self.ports = configuration, ports
        self.sad_percent = 100 if configuration in SMALLER else 50  # percent of a cycle
        self.simulation = simulator().Simulation(parameters(configuration, ports))

    def run(self, size: int, count: int) -> dict[str, int]:
        """The cycles for a stream, and those for its first packet."""
        model, source = simulator(), random.Random(size)
        des = self.configuration.cipher == "DES-ECB"
        sas = [
            model.Sa(n, 0x1000 + n, source.randbytes(8 if des else 16), source.randbytes(20), model.DES if des else model.MAIN)
            for n in range(FLOWS)
        ]
        frames = [model.packet(size, source=f"10.1.0.{k % FLOWS + 1}", body=source.randbytes(size)) for k in range(count)]
        policy, writes = model.Policy(), []
        for sa, frame in zip(sas, frames):
            writes += sa.writes() + policy.entry(model.selectors(frame), model.PROTECT, sa.row)
        script = model.config(writes)
        expected = {sa.spi: [] for sa in sas}
        for k, frame in enumerate(frames):
            script += model.beats(k % FLOWS % self.ports, frame)
            expected[sas[k % FLOWS].spi].append(model.forwarded(frame))
        printed = self.simulation.run([*script, f"g {count} 1000000"], sad_percent=self.sad_percent)
        begin = min(int(line[2]) for line in printed if line[0] == "i")
        out = [line for line in printed if line[0] == "o"]
        for line in out:
            frame = bytes.fromhex(line[4])
            sa = sas[int.from_bytes(frame[20:24], "big") - 0x1000]
            sequence, inner = sa.open(frame)
            sa.last_used += 1
            if sequence != sa.last_used or inner != expected[sa.spi].pop(0):
                sys.exit(f"wrong packet: {self.configuration.name}, {size} bytes")
        if any(expected.values()):
            sys.exit(f"lost packets: {self.configuration.name}, {size} bytes")
        ends = [int(line[3]) + 1 - begin for line in out]
        return {"cycles": max(ends), "latency": min(ends)}

    def rows(self, sizes, streams) -> list[dict[str, object]]:
        rows = []
        for size in sizes:
            cycles = {}
            for at, count in enumerate(STREAMS):
                if count not in streams:
                    continue
                ran = self.run(size, count)
                cycles[count] = ran["cycles"]
                bits, clock = 8 * size * count, self.configuration.clock_mhz
                paper = self.configuration.paper[size][at]
                rows.append({
                    "cipher": self.configuration.cipher, "units": self.configuration.name, "ports": self.ports, "bytes": size,
                    "packets": count, "clock_mhz": clock, "paper_mbit_s": paper, "paper_cycles": round(bits / paper * clock),
                    "cycles": ran["cycles"], "mbit_s": round(bits / ran["cycles"] * clock, 2), "first_packet_cycles": ran["latency"],
                })  # fmt: skip
            if {64, 128} <= cycles.keys():
                rows[-1]["interval_cycles"] = round((cycles[128] - cycles[64]) / 64, 2)
        return rows


def line(row: dict[str, object]) -> list[str]:
    return [
        f"{row['cipher']} {row['units']}", str(row["ports"]), str(row["bytes"]), str(row["packets"]),
        str(row["paper_cycles"]), str(row["cycles"]), f"{row['paper_mbit_s']:.0f}", f"{row['mbit_s']:.0f}",
        f"{row['mbit_s'] / row['paper_mbit_s']:.2f}×", str(row["first_packet_cycles"]), str(row.get("interval_cycles", "")),
    ]  # fmt: skip


HEAD = (
    "configuration", "ports", "bytes", "packets", "paper, cycles", "ours, cycles", "paper, Mbit/s", "ours at the paper's clock, Mbit/s", "ours ÷ paper",
    "first packet, cycles", "a packet more, cycles",
)  # fmt: skip
OUR_CLOCK = "ours at our clock, Mbit/s"

# The resources of an LFE5U-85F. A LUT RAM of 16 words takes the places of six LUTs, and a pair of carries those of
# two.
LUTS, BLOCK_RAMS = 83640, 208
PLACES = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}


def built(configuration: Configuration) -> dict[str, object]:
    """The cells of a configuration, its share of the part and its clocks, from the newest record of its synthesis."""
    record = logic_record(configuration.cipher, configuration.name)
    if not record:
        return {"record": None, "mhz": {}, "why": "–"}
    cells = record["synthesis"]["cells"]
    places = sum(count * cells.get(kind, 0) for kind, count in PLACES.items())
    fits = places <= LUTS and cells["DP16KD"] <= BLOCK_RAMS
    return {
        "record": record, "cells": cells, "share": places / LUTS, "mhz": clocks.clocks(record), "why": "not routed" if fits else "does not fit",
    }  # fmt: skip


def logic() -> list[str]:
    """Tables II and VI beside the newest records of synthesis, then those of smaller configurations that were placed
    and routed."""
    lines = [
        "Tables II and VI, clock and logic: the paper's on a Stratix V, ours on a Lattice LFE5U-85F (83,640 LUTs of four inputs, 208 block "
        "RAMs), one port. Places are of LUTs, with those that carries and LUT RAMs take; what was placed took 4 to 5 % of the part more.", "",
        "|configuration|paper, MHz|paper, logic|ours, LUT4|ours, flip-flops|ours, block RAM|ours, places|ours, MHz|record|", "|---|" + "---:|" * 7 + "---|",
    ]  # fmt: skip
    for each in (*CONFIGURATIONS, *SMALLER):
        found = built(each)
        if each in SMALLER and not found["mhz"]:
            continue
        record, ours = found["record"], ["–"] * 4
        if record:
            ours = [str(found["cells"][kind]) for kind in ("LUT4", "TRELLIS_FF", "DP16KD")] + [f"{found['share']:.0%}"]
        reached = ", ".join(f"{mhz} ({part})" for part, mhz in found["mhz"].items()) or found["why"]
        paper = ("–", "–") if each in SMALLER else (str(each.clock_mhz), f"{each.logic_percent} %")
        lines.append("|" + "|".join([f"{each.cipher} {each.name}", *paper, *ours, reached, f"{record['file']}.json" if record else "none"]) + "|")
    return [*lines, ""]


def prototype_cycles(record: dict[str, object]) -> dict[int, float]:
    """The cycles from packet to packet with one unit of each kind, by packet size."""
    return {u["bytes"]: u["interval_cycles"] for u in record["units"] if (u["cipher"], u["units"]) == ("DES-ECB", "1/1/1/1")}


def prototype(record: dict[str, object]) -> list[str]:
    """Table I beside one unit of each kind."""
    ours = prototype_cycles(record)
    lines = [
        "Table I, the prototype, beside one unit of each kind: cycles from packet to packet. The 1500-byte row is held against the paper's 437.44 Mbit/s, "
        "which its cycles do not give; against the 388.0 that they give it is more.", "",
        "|bytes|paper, cycles|paper, Mbit/s|ours, cycles|ours at the paper's 86.72 MHz, Mbit/s|ours ÷ paper|", "|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for size, cycles, printed in PROTOTYPE:
        rate = mbit_s(size, ours[size], PROTOTYPE_MHZ)
        lines.append(f"|{size}|{cycles}|{printed}|{ours[size]}|{rate:.0f}|{rate / printed:.2f}×|")
    return [*lines, ""]


def our_mbit_s(row: dict[str, object], cycles: str, packets: int) -> dict[str, float]:
    """The Mbit/s of a row for each part, at the clocks that its configuration was routed at."""
    found = clocks.clocks(logic_record(row["cipher"], row["units"])) if row["ports"] == 1 else {}
    return {part: mbit_s(row["bytes"] * packets, row[cycles], mhz) for part, mhz in found.items()}


def at_our_clock(row: dict[str, object], cycles: str, packets: int) -> str:
    return ", ".join(f"{rate:.0f} ({part})" for part, rate in our_mbit_s(row, cycles, packets).items()) or "–"


def text(record: dict[str, object]) -> str:
    lines = [
        f"# Gateway 2.0, {record['date']}", "", f"Commit {record['commit']}, `{record['command']}`, simulated with Verilator.", "",
        *(f"- {note}" for note in NOTES), "", *logic(),
        "|" + "|".join((*HEAD, OUR_CLOCK)) + "|", "|---|" + "---:|" * len(HEAD),
        *("|" + "|".join([*line(row), at_our_clock(row, "cycles", row["packets"])]) + "|" for row in record["rows"]), "",
    ]  # fmt: skip
    if record["units"]:
        lines += prototype(record)
        lines += [f"|units|ports|bytes|cycles a packet more|Mbit/s at 100 MHz|{OUR_CLOCK}|", "|---|---:|---:|---:|---:|---:|"]
        lines += [
            f"|{u['cipher']} {u['units']}|{u['ports']}|{u['bytes']}|{u['interval_cycles']}|{u['mbit_s']:.0f}|{at_our_clock(u, 'interval_cycles', 1)}|"
            for u in record["units"]
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def pictures(record: dict[str, object], stem: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sections"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, cipher in zip(axes, ("DES-ECB", "AES-CBC")):
        for colour, size in enumerate(SIZES):
            for one in (True, False):
                points = sorted(
                    (u["hmacs"], u["mbit_s"] / 1000) for u in record["units"]
                    if u["cipher"] == cipher and u["bytes"] == size and (u["ports"] == 1) == one
                )  # fmt: skip
                if points:
                    label = f"{size} bytes, {'one port' if one else 'a port for each policy unit'}"
                    axis.plot(*zip(*points), "o-" if one else "s--", color=f"C{colour}", label=label)
        axis.set_title(f"{cipher} + HMAC-SHA1")
        axis.set_xlabel("HMAC units (others: see the table)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("Gbit/s at 100 MHz, steady state")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})


# Further points for the picture, with the same proportions.
SMALLER = tuple(
    Configuration(cipher, count, count, count * 3 // 2 + (count == 1) if cipher == "AES-CBC" else count, count, 100.0, 0, {size: (1.0,) * 4 for size in SIZES})
    for cipher in ("DES-ECB", "AES-CBC") for count in (1, 2)
)  # fmt: skip


def point(row: dict[str, object], hmacs: int) -> dict[str, object]:
    """The Mbit/s in the steady state, from the cost of one more packet, at 100 MHz."""
    names = ("cipher", "units", "ports", "bytes", "interval_cycles")
    return {name: row[name] for name in names} | {
        "hmacs": hmacs, "mbit_s": round(8 * row["bytes"] / row["interval_cycles"] * 100, 1)
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", help="only configurations with these units, for example 8/8/8/16")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--streams", default=",".join(map(str, STREAMS)))
    parser.add_argument("--ports", choices=("one", "all"), help="only with one port, or only with as many as policy units")
    parser.add_argument("--no-scaling", action="store_true", help="without the runs for the picture")
    parser.add_argument("--logic", action="store_true", help="measure nothing: put the newest syntheses into the newest record")
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    if arguments.logic:
        path = max(RECORDS.glob("*-sections.json"))
        path.with_suffix(".md").write_text(text(json.loads(path.read_text()), path.stem))
        return
    sizes, streams = ([int(x) for x in getattr(arguments, name).split(",")] for name in ("sizes", "streams"))
    rows, scaling = [], []
    print(" | ".join(HEAD))
    for how in ("one", "all") if arguments.ports is None else (arguments.ports,):
        for configuration in CONFIGURATIONS:
            if arguments.units not in (None, configuration.name):
                continue
            measurement = Measurement(configuration, 1 if how == "one" else configuration.policies)
            found = measurement.rows(sizes, streams)
            rows += found
            for row in found:
                print(" | ".join(line(row)), flush=True)
            scaling += [point(row, configuration.hmacs) for row in found if "interval_cycles" in row]
    if not arguments.no_scaling:
        for configuration in SMALLER:
            measurement = Measurement(configuration, 1)
            scaling += [point(row, configuration.hmacs) for row in measurement.rows(SIZES, (64, 128)) if "interval_cycles" in row]
    slower = [row for row in rows if row["mbit_s"] <= row["paper_mbit_s"]]
    print(f"{len(rows) - len(slower)} of {len(rows)} rows above the paper's")
    if not arguments.no_record:
        record = {
            "what": "Gateway 2.0 in simulation: streams of packets through esp_sections",
            "date": datetime.date.today().isoformat(), "commit": commit(), "sources": digests(*SIMULATED["sections"]),
            "command": "bench/" + " ".join(sys.argv).split("/")[-1],
            "notes": NOTES, "rows": rows, "units": scaling,
        }  # fmt: skip
        stem = f"{record['date']}-sections"
        (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=2) + "\n")
        (RECORDS / f"{stem}.md").write_text(text(record))
        print(f"written: {(RECORDS / stem).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
