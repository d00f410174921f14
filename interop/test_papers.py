"""The page of the papers' tables: every figure is printed in a paper, computed as papers compute, or of a record."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import paper_tables  # noqa: E402
import papers  # noqa: E402
from pages import MISSING, NONE, VERDICTS, verdict  # noqa: E402

# Every table of the papers, with its number of rows.
ROWS = {
    "vpn-ab": {"II": 28, "III": 4},
    "gateway": {"I": 3, "II": 3, "III": 12, "IV": 12, "V": 12, "VI": 2, "VII": 8, "VIII": 8, "IX": 8},
    "zynq": {"1": 8, "2": 3, "3": 2, "4": 4, "5": 4, "6": 4, "7": 4, "8": 4},
    "ace": {"1": 5, "2": 5, "3": 5, "4": 15},
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
            for target in re.findall(r"\]\(([^)#]+)\)", line[-1]):
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
    assert papers.PAGE.read_text() == papers.page(papers.Records())[0], "the page is older than the records: run make papers"


def test_what_no_record_has_is_called_not_measured(tmp_path):
    found = tables(papers.Records(tmp_path))
    check(found)
    for key in ("vpn-ab", "II"), ("gateway", "I"), ("zynq", "5"), ("ace", "2"), ("pipsea", "of headlines"):
        measured = {given for row in found[key].rows for given in row.verdicts} - {NONE}
        assert measured == {MISSING}, key


MACHINE = {"cpu": "Test", "cores": 2}
MADE = {"date": "2000-01-02", "commit": "0", "machine": MACHINE}


def write(folder, name, **record):
    (folder / f"2000-01-02-{name}.json").write_text(json.dumps(MADE | record))


def test_a_record_of_two_cores_counts_both(tmp_path):
    case = {"suite": "3DES/HMAC_MD5_96", "direction": "seal", "size": "1024", "bytes": 1024.0, "keys": 10000, "batch": 512, "cores": 2}
    contenders = {"Esplanade aesni": {"median": 9000.0, "ghz": 4.0}, "Esplanade avx512": {"median": 3000.0, "ghz": 4.0}, "OpenSSL": {"median": 1.0, "ghz": 4.0}}
    write(tmp_path, "vpn-ab-2x-test", cases=[case | {"cpu": cpu, "contenders": contenders} for cpu in (0, 1)])
    # A machine without AVX-512, later in the list: the better tier is shown.
    older = {"Esplanade aesni": {"median": 8000.0, "ghz": 5.0}}
    write(tmp_path, "vpn-ab-3x-test", cases=[case | {"cpu": cpu, "contenders": older} for cpu in (0, 1)])
    walk = {"direction": "outbound", "sas": 10000, "policies": 10000, "bytes": 64, "cycles_median": 1000.0}
    write(tmp_path, "walk-2x-test", cases=[walk])
    found = tables(papers.Records(tmp_path))
    check(found)
    row = next(row for row in found["vpn-ab", "II"].rows if row.cells[1:3] == ["1024", "2"])
    # Two cores of 4 GHz: 2 · 8192 bits ÷ 3000 cycles, and ÷ 4000 with the packet path.
    assert row.cells[4:] == ["avx512", "3000", "4.00", "21.85", "16.38"] and row.verdicts == ["yes"]
    assert found["vpn-ab", "III"].rows[2].verdicts == ["yes"]
    # A machine of the same name has other instructions: the row says so.
    write(tmp_path, "walk-2x-test", machine=MACHINE | {"flags": ["avx512f"]}, cases=[walk])
    found = tables(papers.Records(tmp_path))
    row = next(row for row in found["vpn-ab", "II"].rows if row.cells[1:3] == ["1024", "2"])
    assert row.cells[8] == f"16.38 {found['vpn-ab', 'II'].footnotes[papers.OTHER_MACHINE]}"
    single = next(row for row in found["vpn-ab", "II"].rows if row.cells[1:3] == ["1024", "1"])
    assert single.verdicts == [MISSING]


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
    write(tmp_path, "ace-cores", rows=[core | {"record": "2026-11-23-rtl-aes_pipe"}, unrouted])
    phase = {"bitstream": "mars lane", "input": "B", "phase": "I", "size": 1000, "index_bits": 300, "dictionary_bits": 200, "percent": 50.0}
    write(tmp_path, "ace-lanes-2x-test", phases=[phase, phase | {"input": "A", "percent": 91.0}])
    found = tables(papers.Records(tmp_path))
    check(found)
    assert found["ace", "1"].rows[0].verdicts == ["yes", "yes"] and found["ace", "1"].rows[2].verdicts == [MISSING] * 2
    assert found["ace", "1"].rows[1].verdicts == ["no", MISSING]
    assert "2026-11-23-rtl-aes_pipe.json" in found["ace", "2"].rows[0].sources[2]
    assert "`make rtl` measures it." in found["ace", "2"].footnotes
    assert found["ace", "2"].rows[0].verdicts == ["no", "yes"]
    first = {row.cells[1]: row for row in found["ace", "4"].rows if row.cells[0] == "MARS"}
    assert first["phase I"].verdicts == ["no", "yes"] and first["phase II"].verdicts == [MISSING] * 2


@pytest.mark.parametrize(("ours", "less", "expected"), [
    (2, False, "yes"), (1, False, "no"), (0.5, False, "no"), (0.5, True, "yes"), (1, True, "no"), (None, False, MISSING), ({}, False, MISSING),
    ({"a": 2, "b": 3}, False, "yes"), ({"a": 2, "b": 0}, False, "partly"), ({"a": 0}, False, "no"),
])  # fmt: skip
def test_only_more_is_better(ours, less, expected):
    assert verdict(ours, 1, less) == expected


def test_the_html_has_every_row(tmp_path):
    text, sections = papers.page(papers.Records())
    page = papers.html_page(papers.TITLE, text, {})
    summary = 1 + sum(len(section.counts()) for section in sections)
    assert page.count("<tr>") == summary + sum(1 + len(table.rows) for section in sections for table in section.tables)
    assert page.count("<table>") == page.count("</table>") == 1 + sum(len(section.tables) for section in sections)


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
