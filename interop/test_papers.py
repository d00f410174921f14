"""The page of the papers' tables: every figure is printed in a paper, computed as papers compute, or of a record."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import designs  # noqa: E402
import paper_tables  # noqa: E402
import papers  # noqa: E402
import ratios  # noqa: E402
from pages import FORMER, MISSING, NONE, VERDICTS, Row, Section, Table, Verdict, narrowest, verdict  # noqa: E402

# Every table of the papers, with its number of rows.
ROWS = {
    "vpn-ab": {"I": 5, "II, 3DES-HMAC-MD5": 14, "II, AES(256)-HMAC-SHA1": 14, "III": 5, "of claims": 6},
    "gateway": {"I": 3, "II": 3, "III": 12, "IV": 12, "V": 12, "VI": 2, "VII": 8, "VIII": 8, "IX": 8},
    "zynq": {"1": 8, "2": 3, "3": 2, "4": 4, "5": 4, "6": 4, "7": 4, "8": 4},
    "ace": {"1": 5, "2": 5, "2, speed-up": 5, "3": 5, "4, bits": 15, "4": 15},
}


def tables(records=None):
    sections = papers.page(records or papers.Records())[1]
    return {(section.key, table.number): table for section in sections for table in section.tables}


def close(figure: float, printed: float, tolerance: float) -> bool:
    return abs(figure - printed) <= tolerance


def test_the_formula_gives_the_figures_of_gateway_2_0_or_its_errata():
    for size, cycles, printed in paper_tables.PROTOTYPE:
        right_cycles, right = paper_tables.PROTOTYPE_CORRECTED.get(size, (cycles, printed))
        assert close(paper_tables.mbit_s(size, right_cycles, paper_tables.PROTOTYPE_MHZ), right, 0.01), size
        wrong = not close(paper_tables.mbit_s(size, cycles, paper_tables.PROTOTYPE_MHZ), printed, 0.01)
        assert wrong == (size in paper_tables.PROTOTYPE_ERRATA), size
    assert close(paper_tables.mbit_s(240, 794, paper_tables.PROTOTYPE_MHZ), 209.70, 0.01)


def test_the_formula_gives_the_figures_of_the_zynq_core():
    for row in paper_tables.ZYNQ:
        assert close(paper_tables.mbit_s(row.bytes, row.cycles, paper_tables.ZYNQ_MHZ[row.suite]) / 1000, row.gbit_s, 0.001), row
    for part in paper_tables.ZYNQ_PARTS:
        assert int(part.bits / part.paper_cycles * part.mhz) // 1000 == int(part.gbit_s), part
    udp = {row.bytes: row.cycles for row in paper_tables.ZYNQ if row.suite == paper_tables.GCM}
    assert (udp[514] - udp[522], udp[1438] - udp[1446]) == (0, 96)


def test_the_figures_of_ace_follow_from_each_other_but_for_the_errata():
    sizes = {}
    for cipher in paper_tables.CIPHERS:
        sizes[cipher.name] = cipher.size
        blocks = [latency / cipher.block_us(way) for way, latency in enumerate(cipher.latency_us)]
        assert close(blocks[0], cipher.latency_blocks[0], 0.01), cipher
        wrong = not close(blocks[1], cipher.latency_blocks[1], 0.01)
        assert wrong == (cipher.name in paper_tables.ACE_LATENCY_ERRATA), cipher
        assert not wrong or close(blocks[1], paper_tables.ACE_MARS_BLOCKS, 0.01)
        assert close(cipher.mbit_s[1] / cipher.mbit_s[0], cipher.speed_up, 0.01), cipher
    for row in paper_tables.COMPRESSED:
        size, error = sizes[row.cipher], paper_tables.COMPRESSED_CORRECTED.get((row.cipher, row.phase))
        assert row.index == row.codewords * row.width, row
        width = (row.phrases - 1).bit_length()
        dictionary = row.phrases * (8 + row.width)
        percent = 100 * (row.codewords * width + row.phrases * (8 + width)) / size
        wrong = dictionary != row.dictionary or not close(percent, row.percent, 0.01)
        assert wrong == (error is not None) == ((row.cipher, row.phase) in paper_tables.COMPRESSED_ERRATA), row
        assert error is None or error == dictionary or close(percent, error, 0.01), row
        if row.phase == "LZW":
            cipher = next(cipher for cipher in paper_tables.CIPHERS if cipher.name == row.cipher)
            assert close(row.index / size, cipher.redundancy, 0.0001), row


def test_only_the_marked_figure_of_vpn_ab_falls_from_size_to_size():
    """Larger packets are faster, but for the loads of the line: 1400 bytes were offered less than 1024."""
    for suite, printed in paper_tables.VPN_AB.items():
        by_size = dict(zip(paper_tables.VPN_AB_SIZES, printed))
        for smaller, size in (("64", "128"), ("128", "256"), ("256", "512"), ("512", "1024")):
            marked = (suite, size) in paper_tables.VPN_AB_ERRATA
            assert (by_size[size] < by_size[smaller]) == marked, (suite, size)


def check(found):
    """Every row names a record, a page, or what measures it, and every such file is there."""
    for (paper, number), table in found.items():
        labels = set(table.footnotes.values())
        for line, row in zip(table.lines(), table.rows):
            assert len(line) == len(table.columns()), (paper, number, line)
            assert all(line), (paper, number, line)
            assert set(row.verdicts) <= {*VERDICTS, NONE}, (paper, number, line)
            assert row.sources, (paper, number, line)
            for cell in line:
                assert MISSING not in cell or cell in row.verdicts or any(label in cell for label in labels), (paper, number, cell)
            for target in re.findall(r"\]\(([^)#]+)\)", " ".join(row.sources)):
                if "records" not in target:
                    assert (papers.PAGE.parent / target).exists(), target


def test_every_table_is_there_and_every_row_has_its_source():
    found = tables()
    for paper, numbers in ROWS.items():
        assert {number: len(table.rows) for (key, number), table in found.items() if key == paper} == numbers
    assert len(found["pipsea", "of headlines"].rows) >= len(paper_tables.PIPSEA)
    check(found)
    for table in found.values():
        for target in re.findall(r"\(\.\./(bench/records/[^)]+)\)", "\n".join(table.markdown())):
            assert (ROOT / target).exists(), target


def test_the_errata_are_marked():
    text = papers.page(papers.Records())[0]
    for errata in (paper_tables.PROTOTYPE_ERRATA, paper_tables.VPN_AB_ERRATA, paper_tables.ACE_LATENCY_ERRATA, paper_tables.COMPRESSED_ERRATA):
        for what, error in errata.items():
            assert f"Erratum: {error}." in text, what
    assert "|784 †" in text and "|437.44 †" in text
    assert paper_tables.ZYNQ_NAT_ERRATUM in text


def test_the_page_is_what_the_command_prints():
    text, sections = papers.page(papers.Records())
    assert papers.PAGE.read_text() == text, "the page is older than the records: run make papers"
    for section in sections:
        assert papers.picture_of(section).read_text() == papers.ratios.picture(section), f"{section.key}: run make papers"
        assert f"]({papers.picture_of(section).name})" in text


def test_no_table_is_read_sideways():
    """GitHub shows a page in about 900 pixels beside its list of files."""
    for key, table in tables().items():
        assert narrowest(table.columns(), table.lines()) <= 900, key


def test_the_page_needs_nothing_but_python():
    """No package is there without site-packages."""
    subprocess.run([sys.executable, "-S", str(ROOT / "bench/papers.py"), "--help"], check=True, stdout=subprocess.DEVNULL)


def test_every_table_says_how_to_make_a_row_again():
    ours_alone = {("vpn-ab", "I"), ("zynq", "1")}  # nothing of ours is measured
    for key, table in tables().items():
        assert bool(table.reproduce) != (key in ours_alone), key
        for program in re.findall(r"(?:bench|rtl/syn)/\w+\.(?:py|sh)", table.reproduce):
            assert (ROOT / program).exists(), program


def test_what_no_record_has_is_called_not_measured(tmp_path):
    found = tables(papers.Records(tmp_path))
    check(found)
    for key in ("vpn-ab", "II, 3DES-HMAC-MD5"), ("vpn-ab", "of claims"), ("gateway", "I"), ("zynq", "5"), ("ace", "2"), ("pipsea", "of headlines"):
        measured = {given for row in found[key].rows for given in row.verdicts} - {NONE}
        assert measured == {MISSING}, key


MACHINE = {"cpu": "Test", "cores": 2}
MADE = {"date": "2000-01-02", "commit": "0", "machine": MACHINE}


def write(folder, name, **record):
    (folder / f"2000-01-02-{name}.json").write_text(json.dumps(MADE | record))


VPN_AB_CASE = {"suite": "3DES/HMAC_MD5_96", "size": "1024", "bytes": 1032.0, "asked": 1024.0, "keys": 10000, "batch": 512, "cores": 2}
CONTENDERS = {"Esplanade aesni": {"median": 9000.0, "ghz": 4.0}, "Esplanade avx512": {"median": 3000.0, "ghz": 4.0}, "OpenSSL": {"median": 1.0, "ghz": 4.0}}
WALKS = [{"direction": way, "sas": 10000, "cycles_median": cycles} for way, cycles in (("outbound", 1000.0), ("inbound", 5000.0))]


def both_ways(contenders):
    return [VPN_AB_CASE | {"cpu": cpu, "direction": way, "contenders": contenders} for cpu in (0, 1) for way in ("seal", "open")]


def vpn_ab_row(folder, size="1024", cores="2"):
    table = tables(papers.Records(folder))["vpn-ab", "II, 3DES-HMAC-MD5"]
    return next(row for row in table.rows if row.cells[:2] == [size, cores]), table


def test_a_record_of_two_cores_counts_both_and_both_directions(tmp_path):
    write(tmp_path, "vpn-ab-2x-test", cases=both_ways(CONTENDERS), walks=WALKS)
    # A machine without AVX-512, later in the list: the better tier is shown.
    write(tmp_path, "vpn-ab-3x-test", cases=both_ways({"Esplanade aesni": {"median": 8000.0, "ghz": 5.0}}), walks=WALKS)
    found = tables(papers.Records(tmp_path))
    check(found)
    row, table = vpn_ab_row(tmp_path)
    # Two cores of 4 GHz: 2 · 8192 bits ÷ (3000 + 1000) cycles to seal, ÷ (3000 + 5000) to open, and the mean of the times.
    assert row.cells[3:] == ["3000", "3000", "4.00", "16.38", "8.19", "10.92"] and row.verdicts == ["yes", "no", "no"]
    assert "by the tier avx512 of" in table.notes[0]
    assert found["vpn-ab", "III"].rows[2].verdicts == ["no"] and "10.92" in found["vpn-ab", "III"].rows[2].cells[2]
    assert vpn_ab_row(tmp_path, cores="1")[0].verdicts == [MISSING] * 3


@pytest.mark.parametrize("change", [{"commit": "0-dirty"}, {"walks": WALKS[:1]}, {"cases": [case for case in both_ways(CONTENDERS) if case["direction"] == "seal"]}])
def test_a_row_needs_a_commit_and_both_directions(tmp_path, change):
    write(tmp_path, "vpn-ab-2x-test", **{"cases": both_ways(CONTENDERS), "walks": WALKS} | change)
    assert vpn_ab_row(tmp_path)[0].verdicts == [MISSING] * 3


def test_sizes_of_what_is_encrypted_are_not_those_of_packets(tmp_path):
    cases = [{key: value for key, value in case.items() if key != "asked"} for case in both_ways(CONTENDERS)]
    write(tmp_path, "vpn-ab-2x-test", cases=cases, walks=WALKS)
    assert vpn_ab_row(tmp_path)[0].verdicts == [MISSING] * 3


def test_tunnels_are_those_that_answered(tmp_path):
    up = {"tunnels": 20000, "up": 20000, "seconds": 10.0, "answered": 9999, "pings_meanwhile": 30000, "lost_meanwhile": 7}
    write(tmp_path, "sa-memory-2x-test", results=[{"pairs": 1000000}])
    assert tables(papers.Records(tmp_path))["vpn-ab", "III"].rows[3].verdicts == [MISSING]
    write(tmp_path, "crowd-2x-test", cases=[up])
    found = tables(papers.Records(tmp_path))
    tunnels, held = found["vpn-ab", "III"].rows[3:]
    assert tunnels.verdicts == ["no"] and tunnels.cells[2].startswith("9,999 of 20,000") and "7 of 30,000 pings" in tunnels.cells[2]
    assert held.verdicts == [NONE]
    assert [row.verdicts for row in found["vpn-ab", "of claims"].rows] == [[MISSING], [MISSING], ["no"], [MISSING], [MISSING], [MISSING]]
    write(tmp_path, "crowd-2x-test", cases=[up | {"answered": 10001, "seconds": 1.0}])
    write(tmp_path, "random-2x-test", cases=[{"bytes": size, "mbit_s": rate} for size, rate in ((8, 320), (32, 321), (4096, 319))])
    found = tables(papers.Records(tmp_path))
    assert found["vpn-ab", "III"].rows[3].verdicts == ["yes"]
    assert [row.verdicts for row in found["vpn-ab", "of claims"].rows[2:]] == [["yes"], ["no"], ["yes"], ["no"]]


def gpu_case(row, **more):
    return {"row": row, "engine": "gpu"} | more


def test_a_gpu_record_fills_its_rows_and_an_old_form_does_not(tmp_path):
    write(tmp_path, "gpu-portable-2x-test", device="portable", cases=[gpu_case("R1", arrangement="full", gbits=99.0, latency_us=1)])
    closed = [gpu_case(row, part="closed", arrangement="full", gbits=gbits) for row, gbits in (("R1", 20.0), ("R2", 5.0))]
    closed.append({"row": "R1", "engine": "cpu", "part": "closed", "gbits": 12.0})
    # Kernels with tables are another figure.
    closed.insert(0, gpu_case("R1", part="closed", arrangement="full", gbits=30.0, tables=True))
    loads = [gpu_case("R1", part="open", offered_gbits=gbits, latency_us=us) for gbits, us in ((5, 100), (10, 200), (15, 1500), (17, 9000), (10.36, 400))]
    loads += [gpu_case("R2", part="open", offered_gbits=gbits, latency_us=10) for gbits in (1.25, 2.5, 3.75, 4.25)]
    write(tmp_path, "gpu-h100-16x-test", device="H100", cases=closed + loads)
    found = tables(papers.Records(tmp_path))
    check(found)
    first, second, third = found["pipsea", "of headlines"].rows
    assert first.cells[2:] == ["R1, H100", "10.36", "20.00", "12.00", "2.79", "0.40", "10.36"] and first.verdicts == ["yes", "yes"]
    assert second.verdicts == ["no", "no"] and second.cells[-1] == "3.75" and third.verdicts == [MISSING, MISSING]


def test_a_load_that_a_budget_left_out_is_not_taken_for_another(tmp_path):
    closed = [gpu_case(row, part="closed", arrangement="full", gbits=5.0) for row in ("R1", "R2")]
    shares = {"R1": (0.25, 0.75, 0.85), "R2": (0.25, 0.5, 0.85)}
    loads = [gpu_case(row, part="open", share=share, offered_gbits=5 * share, latency_us=10) for row in shares for share in shares[row]]
    write(tmp_path, "gpu-h100-16x-test", device="H100", cases=closed + loads)
    first, second, _ = tables(papers.Records(tmp_path))["pipsea", "of headlines"].rows
    assert first.cells[-1] == "3.75" and first.verdicts == ["no", "no"]
    assert second.verdicts == ["no", MISSING]


def test_records_of_the_adaptive_engine_fill_its_tables(tmp_path):
    routed = {"LFE5U-85F-6": {"mhz": 64.0, "mbit_s": 512.0, "one_mbit_s": 100.0, "latency_us": 0.5}}
    core = {"core": "ace-mars-128", "cipher": "MARS", "cycles": {"rate": 16.0, "block": 100, "encrypt": 150}, "routed": routed}
    unrouted = core | {"core": "ace-rc6-128", "routed": {}}
    write(tmp_path, "ace-cores", sources=designs.digests("ace_cipher"), rows=[core | {"record": "2026-11-29-rtl-ace-mars-128"}, unrouted])
    phase = {"bitstream": "mars lane", "input": "B", "phase": "I", "size": 1000, "index_bits": 300, "dictionary_bits": 200, "percent": 50.0}
    lzw = phase | {"phase": "LZW", "index_bits": 345}
    write(tmp_path, "ace-lanes-2x-test", phases=[phase, phase | {"input": "A", "percent": 91.0}, lzw, lzw | {"input": "A", "index_bits": 900}])
    found = tables(papers.Records(tmp_path))
    check(found)
    assert found["ace", "1"].rows[0].verdicts == ["yes", "yes"] and found["ace", "1"].rows[2].verdicts == [MISSING] * 2
    assert found["ace", "1"].rows[1].verdicts == ["no", MISSING]
    assert "2026-11-29-rtl-ace-mars-128.json" in found["ace", "2"].rows[0].sources[2]
    assert "`make rtl` measures it." in found["ace", "2"].footnotes
    # Interleaved blocks would be more than the paper's one block. They are not compared.
    assert found["ace", "2"].rows[0].verdicts == ["no"] and found["ace", "2"].rows[0].cells[3:6] == ["100 at grade 6", "16", "512 at grade 6"]
    first = {row.cells[1]: row for row in found["ace", "4"].rows if row.cells[0] == "MARS"}
    assert first["phase II"].verdicts == [MISSING] * 2
    # 90.59 % ÷ 0.6890 in the paper: 50 % of an input of half the redundancy are more than that, 91 % of a fuller one are less.
    assert first["LZW"].verdicts == [NONE] * 2 and first["phase I"].verdicts == ["yes", "no"]


MODULES = {"top": "module top; part u_part();", "part": "module part; import a_pkg::*;", "a_pkg": "package a_pkg;", "other": "module other;"}


def test_a_design_is_its_modules_and_packages_without_their_comments():
    assert designs.parts(MODULES, "top") == {"top", "part", "a_pkg"}
    whole = designs.digest("top", MODULES)
    assert designs.digest("top", MODULES | {"other": "module other; logic new;"}) == whole
    for name in ("top", "part", "a_pkg"):
        assert designs.digest("top", MODULES | {name: MODULES[name] + " logic new;"}) != whole
    assert designs.code("a  b // c\n/* d\n e */f") == "a b f"


def test_the_digests_of_older_records_are_those_of_their_commits():
    seen = 0
    for stem, made in designs.earlier().items():
        record = json.loads((designs.RECORDS / f"{stem}.json").read_text())
        # A shallow checkout does not have them.
        if (found := designs.of_history(stem, record)) is not None:
            assert found == made, stem
            seen += 1
    assert seen or designs.git("rev-parse", "--is-shallow-repository") != "false"


def test_every_record_of_rtl_has_a_digest():
    for path in designs.RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        for top in designs.tops(path.stem, record):
            assert top in (record.get("sources") or designs.earlier()[path.stem]), path.name


def test_what_rtl_had_that_changed_since_is_no_yes(monkeypatch):
    old = {"file": "2000-01-02-rtl-x", "top": "top", "sources": {"top": designs.digest("top", MODULES)}, "commit": "0", "routed": []}
    records, yes, no = papers.Records(), verdict(3, 2), verdict(1, 2)
    monkeypatch.setattr(designs, "present", lambda: MODULES)
    assert records.judge(yes, None, old) == "yes" and FORMER not in records.cite(old)
    monkeypatch.setattr(designs, "present", lambda: MODULES | {"part": "module part;"})
    records = papers.Records()
    assert records.judge(yes, old) == FORMER and records.judge(no, old) == "no" and records.cite(old).endswith(FORMER)
    assert records.judge(yes, old).ratios == (1.5,)


def test_a_picture_has_a_point_for_each_figure():
    rows = [Row(["a"], [given], []) for given in (verdict({"x": 4, "y": 1}, 2), verdict(1, 2), Verdict.of(FORMER, [3]), Verdict(MISSING))]
    drawn = ratios.picture(Section("a", "A", [], [Table("I", "a", "b", ("a",), 1, ("speed",), rows=rows)]))
    assert drawn.count("<circle") == 3 and drawn.count('fill="none"') == 1 and "I: speed" in drawn
    assert ratios.picture(Section("a", "A", [], [])) is None


@pytest.mark.parametrize(("ours", "less", "expected"), [
    (2, False, "yes"), (1, False, "no"), (0.5, False, "no"), (0.5, True, "yes"), (1, True, "no"), (None, False, MISSING), ({}, False, MISSING),
    ({"a": 2, "b": 3}, False, "yes"), ({"a": 2, "b": 0}, False, "partly"), ({"a": 0}, False, "no"),
])  # fmt: skip
def test_only_more_is_better(ours, less, expected):
    assert verdict(ours, 1, less) == expected


def test_the_html_has_every_row(tmp_path):
    text, sections = papers.page(papers.Records())
    page = papers.html_page(papers.TITLE, text)
    summary = 1 + sum(len(section.counts()) for section in sections) + 1 + text.split("## Records")[1].count("\n|[")
    assert page.count("<tr>") == summary + sum(1 + len(table.rows) for section in sections for table in section.tables)
    assert page.count("<table>") == page.count("</table>") == 2 + sum(len(section.tables) for section in sections)


def test_live_measures_with_benches_that_are_there(monkeypatch, capsys):
    """A bench that is not in the checkout is named; the others run one after the other."""
    ran = []

    class Done:
        returncode = 0

    monkeypatch.setattr(papers, "LIVE", (("zynq", "7 minutes"), ("nothing", "none")))
    monkeypatch.setattr(papers.subprocess, "run", lambda command, **_: ran.append(Path(command[1]).name) or Done())
    assert papers.measure()
    assert ran == ["zynq.py"]
    printed = capsys.readouterr().out
    assert "bench/zynq.py: 7 minutes" in printed and "SKIP bench/nothing.py" in printed
