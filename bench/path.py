"""Times the whole packet path on one core with the CPU engine. Runs DPDK's ipsec-secgw beside it if IPSEC_SECGW names
its binary.

Both get the same packets, copied in from memory, with the same keys, in turns. Writes a record and a table. Pages of
2 MiB (`--pages 2m`) need root: they are reserved for the time of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import Bench
from setups import ROOT
from tunnel import RECORDS, machine_name

WHAT = ("packets through policy, SA, sequence number, ESP, crypto and outer header on one core, copied in from memory; one tunnel SA "
        "without ESN and anti-replay, eight flows; medians of rounds in turns")
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_WANTED = 600
SECGW = "ipsec-secgw"
KEYS = {"AES_GCM_16_256": 36, "AES_CBC_128/HMAC_SHA1_96": 36}


def material(suite: str) -> list[str]:
    """Makes the key material as crates/ipsec/benches/path.rs does."""
    return [f"{(i * 7 + 1) & 0xff:02x}" for i in range(KEYS[suite])]


def configuration(suite: str, spi: int) -> str:
    """Makes the configuration of ipsec-secgw: packets come from port 0 and leave through port 1."""
    key = material(suite)
    if suite.startswith("AES_GCM"):
        algorithms = f"aead_algo aes-256-gcm aead_key {':'.join(key)}"
    else:
        algorithms = (f"cipher_algo aes-128-cbc cipher_key {':'.join(key[:16])} "
                      f"auth_algo sha1-hmac auth_key {':'.join(key[16:])}")
    ports = "sport 0:65535 dport 0:65535"
    return "\n".join([
        f"sp ipv4 out esp protect 5 pri 1 dst 10.2.0.0/16 {ports}",
        f"sp ipv4 in esp protect {spi} pri 1 dst 10.1.0.0/16 {ports}",
        f"sa out 5 {algorithms} mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5",
        f"sa in {spi} {algorithms} mode ipv4-tunnel src 172.16.2.5 dst 172.16.1.5",
        *(f"rt ipv4 dst {net} port 1" for net in ("172.16.2.5/32", "10.2.0.0/16", "10.1.0.0/16")),
        "neigh port 0 02:00:00:00:00:01",
        "neigh port 1 02:00:00:00:00:02",
    ]) + "\n"


def cpu_seconds(pid: int) -> float:
    """The processor time that the threads of a process have had. On a busy machine it is less than the time that went
    by."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def secgw_mpps(binary: str, folder: Path, case: dict, cpu: int, huge: bool, seconds: int) -> float:
    """Millions of packets sent per second of processor time: the median of the program's statistics, which come once
    a second."""
    direction, suite, _ = case["case"].split()
    config = folder / "secgw.cfg"
    spi = case["spi"] if direction == "inbound" else 105
    config.write_text(configuration(suite, spi))
    memory = ["--in-memory", "-m", "512"] if huge else ["--no-huge", "-m", "1024"]
    # Only the encrypted side is called unprotected.
    unprotected = "0x1" if direction == "inbound" else "0x2"
    command = ["stdbuf", "-oL", binary, "-l", str(cpu), *memory, "--no-pci", "--no-telemetry", "--log-level", "4",
               "--file-prefix", f"bench{os.getpid()}",
               "--vdev", f"net_pcap0,rx_pcap={case['pcap']},infinite_rx=1", "--vdev", "net_null0,no-rx=1",
               "--vdev", "crypto_aesni_mb0", "--", "-p", "0x3", "-P", "-u", unprotected, "-l", "-t", "1",
               "--config", f"(0,0,{cpu}),(1,0,{cpu})", "-f", str(config)]
    seen: list[tuple[float, int, int]] = []
    tail: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as program:
        try:
            sent = 0
            deadline = time.monotonic() + 30 + seconds
            for line in program.stdout:
                tail = [*tail[-9:], line.strip()]
                if found := re.match(r"Total packets sent:\s+(\d+)", line):
                    sent = int(found[1])
                if found := re.match(r"Total packets dropped:\s+(\d+)", line):
                    seen.append((cpu_seconds(program.pid), sent, int(found[1])))
                if len(seen) > seconds + 1 or time.monotonic() > deadline:
                    break
        finally:
            program.terminate()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
    if len(seen) < 3:
        raise RuntimeError(f"{SECGW} printed no statistics: {' / '.join(tail)}")
    if seen[-1][2] > 0.01 * seen[-1][1] or seen[-1][1] == 0:
        raise RuntimeError(f"{SECGW} dropped {seen[-1][2]} packets and sent {seen[-1][1]}")
    rates = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in zip(seen[1:], seen[2:])]
    return statistics.median(rates) / 1e6


def own(bench: Bench, huge: bool, arguments: list[str]) -> list[dict]:
    if huge:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=2"
    try:
        return bench.cases(arguments)
    finally:
        os.environ.pop("GLIBC_TUNABLES", None)


def measure(bench: Bench, options: argparse.Namespace, folder: Path, huge: bool, skipped: dict[str, str]) -> list[dict]:
    """Measures in turns (A B, A B, …), so that other work of the machine hits both contenders alike."""
    wanted = ["--cases", options.cases]
    files = {case["case"]: case for case in bench.cases([*wanted, "--pcap", str(folder)])}
    binary = os.environ.get("IPSEC_SECGW")
    figures: dict[str, dict[str, list]] = {name: {"own": [], SECGW: []} for name in files}
    for _ in range(options.rounds):
        for tier in options.tiers:
            more = ["--tier", tier] if tier else []
            for row in own(bench, huge, [*wanted, *more, "--samples", str(options.samples), "--burst", str(options.burst)]):
                figures[row["case"]]["own"].append(row)
        for name, case in files.items():
            if not binary or SECGW in skipped:
                continue
            try:
                mpps = secgw_mpps(binary, folder, case, options.cpu, huge, options.seconds)
            except (OSError, RuntimeError) as error:
                skipped[SECGW] = str(error)
                print(f"SKIP {SECGW}: {error}")
                continue
            figures[name][SECGW].append(mpps)
            print(f"{SECGW} {name}: {mpps:.2f} Mpps", flush=True)
    cases = []
    for name, taken in figures.items():
        bytes_ = int(name.split()[-1])
        case: dict = {"case": name, "bytes": bytes_, "pages": "2 MiB" if huge else "4 KiB", "esplanade": {}}
        for tier in dict.fromkeys(row["tier"] for row in taken["own"]):
            rows = [row for row in taken["own"] if row["tier"] == tier]
            case["esplanade"][tier] = {key: round(statistics.median(row[key] for row in rows), 3)
                                       for key in ("cycles_median", "cycles_min", "mpps", "gbit_s")}
        if taken[SECGW]:
            mpps = statistics.median(taken[SECGW])
            case[SECGW] = {"mpps": round(mpps, 3), "gbit_s": round(mpps * bytes_ * 8 / 1e3, 2),
                           "rounds": [round(value, 3) for value in taken[SECGW]]}
        cases.append(case)
    return cases


def markdown(record: dict) -> str:
    facts = record["machine"]
    tiers = list(dict.fromkeys(tier for case in record["cases"] for tier in case["esplanade"]))
    head = ["", "pages", *(f"Esplanade {tier}" for tier in tiers), SECGW, f"{tiers[-1]} ÷ {SECGW}"]
    text = [f"# The whole packet path on one core, {record['date']}", "",
            f"{facts['cores']} × {facts['cpu']}, Linux {facts['kernel']}, governor: {facts['governor']}, load at start "
            f"{facts['load_at_start']:.2f}. Commit {record['commit']}.", "", f"`{record['command']}`", "",
            "Packets copied in from memory, policy, SA, sequence number, ESP, crypto, outer header; what ipsec-secgw does besides: "
            f"Ethernet header, routing, one poll for each 32 packets. Bursts of {record['burst']} here. Inner packets.", "",
            "| " + " | ".join(head) + " |", "|---|---" + "|---:" * (len(head) - 2) + "|"]
    for case in record["cases"]:
        cells = [case["case"], case["pages"]]
        for tier in tiers:
            found = case["esplanade"].get(tier)
            cells.append(f"{found['cycles_median']:.0f} cycles, {found['mpps']:.2f} Mpps, {found['gbit_s']:.1f} Gbit/s" if found else "–")
        peer = case.get(SECGW)
        cells.append(f"{peer['mpps']:.2f} Mpps, {peer['gbit_s']:.1f} Gbit/s" if peer else "–")
        cells.append(f"{case['esplanade'][tiers[-1]]['mpps'] / peer['mpps']:.2f}×" if peer else "–")
        text.append("| " + " | ".join(cells) + " |")
    for name, reason in record["skipped"].items():
        text += ["", f"{name} was not measured: {reason}"]
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="bound", help="parts of names, with commas, such as 'GCM_16_256 64'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=4, help="of ipsec-secgw in each round")
    parser.add_argument("--burst", type=int, default=128)
    parser.add_argument("--tiers", type=lambda text: text.split(","), default=[""], help="with commas; the fastest if left out")
    parser.add_argument("--pages", type=lambda text: text.split(","), default=["4k", "2m"])
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    options = parser.parse_args()

    binary = os.environ.get("IPSEC_SECGW")
    shown = " ".join((["IPSEC_SECGW=…"] if binary else []) + ["bench/path.py", *sys.argv[1:]])
    bench = Bench("esplanade-ipsec", "path", shown)
    bench.build()
    skipped = {} if binary else {SECGW: "IPSEC_SECGW names no binary"}
    everywhere = os.sched_getaffinity(0)
    cases = []
    for pages in options.pages:
        huge, before = pages == "2m", None
        try:
            if huge:
                before = HUGE_PAGES.read_text()
                HUGE_PAGES.write_text(str(HUGE_WANTED))
                if int(HUGE_PAGES.read_text()) < HUGE_WANTED:
                    raise OSError(f"no {HUGE_WANTED} pages of 2 MiB")
            os.sched_setaffinity(0, {options.cpu})
            with tempfile.TemporaryDirectory(prefix="esp-") as folder:
                cases += measure(bench, options, Path(folder), huge, skipped)
        except OSError as error:
            skipped[f"with pages of {pages}"] = str(error)
            print(f"SKIP pages of {pages}: {error}")
        finally:
            os.sched_setaffinity(0, everywhere)
            if before is not None:
                HUGE_PAGES.write_text(before)
    record = bench.record(WHAT, {"burst": options.burst, "rounds": options.rounds, "skipped": skipped, "cases": cases})
    print("\n" + markdown(record))
    if not options.no_record:
        RECORDS.mkdir(exist_ok=True)
        stem = f"{record['date']}-path-{machine_name(bench.machine)}"
        (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        (RECORDS / f"{stem}.md").write_text(markdown(record))
        print(f"written: {(RECORDS / stem).relative_to(ROOT)}.json, .md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
