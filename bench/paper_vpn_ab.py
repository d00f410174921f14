"""VPN-AB's tables and claims beside ours."""

from __future__ import annotations

import statistics

import paper_tables as papers
from engine import fastest_tier
from pages import MISSING, NONE, Row, Table, Verdict, verdict
from paper_records import Records, script

TIERS = ("portable", "aesni", "avx512")
DIRECTIONS = ("seal", "open")
CORES = (1, 2)
NOTES = [
    "The paper measured a board with a security processor between two network testers, both ways at once; its figures have the cards in them.",
    "Its 1024-byte rows were offered 95 % of the line, those beside them 90 %, the smallest 55 %. 15.645 Gbit/s are more than 95 % of the eight "
    "ports of 1 Gbit/s each way, so its bits may be those of the packets with ESP around them. Ours are those of the inner packets, which are fewer.",
]


def mean_bytes(size: str) -> float:
    return statistics.mean(map(int, size.split("-")))


def engine_cores(record: dict, suite: str, size: str, direction: str, cores: int) -> tuple[str, list[tuple[float, float]], float] | None:
    """The fastest tier, for each core its cycles a packet and the clock in GHz, and the mean bytes of a packet.

    Only cases count that have whole packets: older ones gave the sizes of what is encrypted.
    """
    wanted = (suite, size, direction, papers.VPN_AB_TUNNELS, cores)
    found = [
        case for case in record["cases"]
        if "asked" in case and (case["suite"], case["size"], case["direction"], case["keys"], case.get("cores", 1)) == wanted
    ]  # fmt: skip
    largest = max((case["batch"] for case in found), default=0)
    last = [case for case in found if case["batch"] == largest]
    if len(last) != cores:
        return None
    name = fastest_tier(list(last[0]["contenders"]))
    each = [(case["contenders"][name]["median"], case["contenders"][name]["ghz"]) for case in last]
    return name.removeprefix("Esplanade "), each, last[0]["asked"]


def walk_cycles(record: dict) -> dict[str, float]:
    """The cycles of both packet paths without crypto, for as many SAs as the paper has tunnels."""
    walks = {case["direction"]: case["cycles_median"] for case in record.get("walks", []) if case["sas"] == papers.VPN_AB_TUNNELS}
    return {way: walks[walk] for way, walk in zip(DIRECTIONS, ("outbound", "inbound")) if walk in walks}


def measured(record: dict, suite: str, size: str, cores: int) -> dict | None:
    """Both directions of a row: cycles in the engine, and Gbit/s with the packet path; and half of the packets each way."""
    ways = {way: engine_cores(record, suite, size, way, cores) for way in DIRECTIONS}
    walks = walk_cycles(record)
    if None in ways.values() or len(walks) < len(DIRECTIONS):
        return None
    tier, each, asked = ways["seal"]
    gbit_s = {way: sum(8 * asked / (cycles + walks[way]) * ghz for cycles, ghz in ways[way][1]) for way in DIRECTIONS}
    cycles = {way: statistics.mean(cycles for cycles, _ in ways[way][1]) for way in DIRECTIONS}
    ghz = statistics.mean(ghz for way in DIRECTIONS for _, ghz in ways[way][1])
    # A packet each way in turn takes the time of both.
    both = 2 / sum(1 / rate for rate in gbit_s.values())
    return {"tier": tier, "cycles": cycles, "ghz": ghz, "gbit_s": gbit_s | {"both": both}}


def best_record(records: Records, suite: str, size: str, cores: int) -> tuple[dict, dict] | None:
    """The newest record of the best tier that any has for this row, and its figures."""
    found = [(record, one) for record in records.all("vpn-ab-*") if (one := measured(record, suite, size, cores))]
    return max(found, key=lambda pair: TIERS.index(pair[1]["tier"]), default=None)


def engine(records: Records, suite: str) -> tuple[Table, float | None]:
    """Table II for a suite, and our best Gbit/s both ways where the paper has its own best."""
    name = papers.VPN_AB_NAMES[suite]
    table = Table(
        f"II, {name}", "performance of VPN-AB", "Section IV.B, tunnel mode ESP",
        ("packet, bytes", "our cores", "paper, Gbit/s at the offered load", "cycles to seal", "cycles to open", "GHz", "sealing, Gbit/s", "opening, Gbit/s",
         "half each way, Gbit/s"), 2, ("sealing", "opening", "half each way"), at=(6, 7, 8),
        reproduce=f"`{script('vpn_ab.py')}`, two minutes on an idle machine; it writes a record.",
    )  # fmt: skip
    best, tiers, missing = None, {}, lambda: table.missing(script("vpn_ab.py"))
    for size, load, paper in zip(papers.VPN_AB_SIZES, papers.VPN_AB_LOADS, papers.VPN_AB[suite]):
        for cores in CORES:
            shown = table.erratum(f"{paper} ({load} %)", papers.VPN_AB_ERRATA.get((suite, size)))
            cells, found = ["random " * ("-" in size) + size, str(cores), shown], best_record(records, suite, size, cores)
            if not found:
                table.rows.append(Row([*cells, *[missing()] * 6], [Verdict(MISSING)] * 3, [missing()]))
                continue
            record, one = found
            tiers.setdefault(one["tier"])
            cells += [f"{one['cycles'][way]:.0f}" for way in DIRECTIONS] + [f"{one['ghz']:.2f}"] + [f"{rate:.2f}" for rate in one["gbit_s"].values()]
            table.rows.append(Row(cells, [verdict(rate, paper) for rate in one["gbit_s"].values()], [records.cite(record)]))
            if size == "1024":
                best = max(best or 0, one["gbit_s"]["both"])
    table.notes = (
        f"Ours: {name} by the tier {' or '.join(tiers) or 'that the record has'} of the CPU engine, 10,000 keys in random order. The Gbit/s are computed: bits of "
        "the inner packet ÷ (cycles in the engine + cycles of our packet path with 10,000 SAs) × clock, without network cards. "
        "*Half each way* has as many packets sealed as opened by the same cores.",
    )  # fmt: skip
    return table, best


def power() -> Table:
    table = Table("I", "power consumption of VPN-AB", "Section III.D, watts", ("voltage", "paper, W", "ours, W"), 1, ("",), at=(2,))
    why = "The machines of the records are virtual and show no counter of energy, and no board of ours was made."
    for rail, watts in papers.VPN_AB_POWER:
        table.rows.append(Row([rail, f"{watts}", f"{MISSING} {table.label(why)}"], [Verdict(MISSING)], [NONE]))
    return table


def crowd_rows(table: Table, records: Records) -> list[Row]:
    """Tunnels from end to end, and SAs in memory, which are no tunnels."""
    crowd = records.newest("crowd-*", "cases")
    command = f"sudo {script('crowd.py')}"
    most = max((case for case in crowd["cases"]), key=lambda case: case["answered"], default=None) if crowd else None
    lost = f"{most['lost_meanwhile']:,} of {most['pings_meanwhile']:,} pings lost while all were rekeyed" if most else ""
    ours = f"{most['answered']:,} of {most['tunnels']:,} between two gateways of one machine, a ping through each; {lost}" if most else table.missing(command)
    tunnels = Row(["tunnels", f"{papers.VPN_AB_TUNNELS:,}", ours], [verdict(most and most["answered"], papers.VPN_AB_TUNNELS)],
                  [records.cite(crowd) if crowd else table.missing(command)])  # fmt: skip
    held = records.newest("sa-memory-*", "results")
    command = "cargo run --locked --release -p esplanade-ipsec --example sa_memory -- 1000000"
    pairs = f"{max(one['pairs'] for one in held['results']):,} pairs" if held else table.missing(command)
    return [tunnels, Row(["SAs in memory, without IKE", NONE, pairs], [NONE], [records.cite(held) if held else table.missing(command)])]


def compared(records: Records, best: float | None) -> Table:
    table = Table(
        "III", "VPN-AB beside other equipment, its own column", "Section IV.B", ("item", "VPN-AB", "ours"), 3, ("",),
        reproduce=f"`{script('vpn_ab.py')}` for the performance; `sudo {script('crowd.py')}` for the tunnels, two minutes.",
    )  # fmt: skip
    table.rows += [
        Row(["variable cryptographies", "√", "every algorithm of RFC 8221"], [NONE], ["[features](features.md)"]),
        Row(["compatibility", "FreeS/WAN", "strongSwan, libreswan"], [NONE], ["[interop](../interop/README.md)"]),
    ]  # fmt: skip
    table.rows.append(Row(
        ["performance (3DES/MD5)", f"{papers.VPN_AB_GBIT_S} Gbit/s",
         f"{best:.2f} Gbit/s at 1024 bytes, half each way, computed" if best else table.missing(script("vpn_ab.py"))],
        [verdict(best, papers.VPN_AB_GBIT_S)], ["[table II](#table-ii-3des-hmac-md5-performance-of-vpn-ab)"],
    ))  # fmt: skip
    table.rows += crowd_rows(table, records)
    return table


def claims(records: Records) -> Table:
    table = Table(
        "of claims", "the security processor's rates", "Section III.B, the maker's figures", ("claim", "paper", "how ours is measured", "ours"), 3, ("",), at=(3,),
        notes=("A handshake of ours is IKE_SA_INIT and IKE_AUTH, which IKEv2 has for main mode and quick mode, with X25519 and a pre-shared key; both ends "
               "are computed and count as one. The paper names neither group nor authentication, and no ends.",),
        reproduce=f"`{script('handshake.py')}`, `sudo {script('crowd.py')}`, `{script('random_numbers.py')}`; each writes a record.",
    )  # fmt: skip
    claim, paper = "IKE main modes a second", f"{papers.VPN_AB_MAIN_MODES:,}"
    handshakes = next((record for record in records.all("handshake-*") if isinstance(record["handshakes_s"], list)), None)
    for cores in CORES:
        cases = [case for case in handshakes["handshakes_s"] if (case["cores"], case["proof"]) == (cores, "psk")] if handshakes else []
        best = max(cases, key=lambda case: case["median"], default=None)
        missing = None if best else table.missing(script("handshake.py"))
        how = f"both ends in one process on {cores} core{'s' * (cores > 1)}, no network"
        table.rows.append(Row([claim, paper, how, f"{best['median']:,}" if best else missing],
                              [verdict(best and best["median"], papers.VPN_AB_MAIN_MODES)], [records.cite(handshakes) if best else missing]))  # fmt: skip
    crowd = records.newest("crowd-*", "cases")
    most = max(crowd["cases"], key=lambda case: case["tunnels"], default=None) if crowd else None
    missing = None if most else table.missing(f"sudo {script('crowd.py')}")
    rate = most["up"] / most["seconds"] if most else None
    table.rows.append(Row([claim, paper, "between two gateways of one machine with two cores, until all tunnels are up", f"{rate:,.0f}" if most else missing],
                          [verdict(rate, papers.VPN_AB_MAIN_MODES)], [records.cite(crowd) if most else missing]))  # fmt: skip
    random = records.newest("random-*", "cases")
    for size, what in ((8, "an SPI of 8 bytes"), (32, "a nonce of 32 bytes"), (4096, "4,096 bytes")):
        case = next((case for case in random["cases"] if case["bytes"] == size), None) if random else None
        missing = None if case else table.missing(script("random_numbers.py"))
        table.rows.append(Row(["random numbers, Mbit/s", str(papers.VPN_AB_RANDOM_MBIT_S), f"IKE's generator, one core, {what} at a time",
                               f"{case['mbit_s']:,.0f}" if case else missing],
                              [verdict(case and case["mbit_s"], papers.VPN_AB_RANDOM_MBIT_S)], [records.cite(random) if case else missing]))  # fmt: skip
    return table


def tables(records: Records) -> list[Table]:
    found = [engine(records, suite) for suite in papers.VPN_AB]
    best = found[list(papers.VPN_AB).index("3DES/HMAC_MD5_96")][1]
    return [power(), *(table for table, _ in found), compared(records, best), claims(records)]
