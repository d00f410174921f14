"""Tables of papers beside ours, and pages of them: Markdown, HTML and pictures."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path

MISSING = "not measured"
VERDICTS = ("yes", "partly", "no", MISSING)
NONE = "–"  # nothing to compare


def markdown_table(head, lines, words: int) -> list[str]:
    """A table whose first `words` columns are text, and whose others are figures."""
    rows = ["|" + "|".join(cells) + "|" for cells in (head, *lines)]
    return [rows[0], "|---" * words + "|---:" * (len(head) - words) + "|", *rows[1:], ""]


def verdict(ours, paper: float, less: bool = False) -> str:
    """Says if ours beats the paper's figure: one figure, or one for each part, which may differ."""
    figures = list(ours.values()) if isinstance(ours, dict) else [ours]
    if not figures or None in figures:
        return MISSING
    better = {figure < paper if less else figure > paper for figure in figures}
    return "partly" if len(better) > 1 else "yes" if better.pop() else "no"


@dataclass
class Row:
    cells: list[str]
    verdicts: list[str]
    sources: list[str]  # links to records, or the label of what would measure it
    bars: dict[str, float] = field(default_factory=dict)


@dataclass
class Table:
    """One table of a paper. `judged` names what each verdict is about."""

    number: str
    title: str
    place: str
    head: tuple[str, ...]
    words: int
    judged: tuple[str, ...]
    notes: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    footnotes: dict[str, str] = field(default_factory=dict)
    unit: str = ""  # of the bars

    def label(self, text: str) -> str:
        """The label of a footnote; the same text has the same label."""
        return self.footnotes.setdefault(text, f"({len(self.footnotes) + 1})")

    def missing(self, command: str) -> str:
        return f"{MISSING} {self.label(f'`{command}` measures it.')}"

    def erratum(self, printed: object, text: str | None) -> str:
        """A figure as printed, marked if it is wrong."""
        return f"{printed} † {self.label(f'Erratum: {text}.')}" if text else str(printed)

    def columns(self) -> tuple[str, ...]:
        return (*self.head, *(f"ours better: {what}" if what else "ours better" for what in self.judged), "record")

    def lines(self) -> list[list[str]]:
        return [[*row.cells, *row.verdicts, "; ".join(row.sources)] for row in self.rows]

    def markdown(self) -> list[str]:
        lines = [f"### Table {self.number}: {self.title}", "", f"{self.place}. {' '.join(self.notes)}".strip(), ""]
        lines += markdown_table(self.columns(), self.lines(), self.words)
        if self.footnotes:
            lines += [*(f"- {label} {text}" for text, label in self.footnotes.items()), ""]
        return lines


@dataclass
class Section:
    """A paper with its tables."""

    key: str
    title: str
    notes: list[str]
    tables: list[Table]

    def counts(self) -> list[list[str]]:
        """How many verdicts there are of each kind, by what they are about."""
        found: dict[str, list[str]] = {}
        for table in self.tables:
            for row in table.rows:
                for what, given in zip(table.judged, row.verdicts, strict=True):
                    found.setdefault(what, []).append(given)
        link = f"[{self.title}](#{anchor(self.title)})"
        counted = {what: [str(given.count(one)) for one in VERDICTS] for what, given in found.items() if set(given) != {NONE}}
        return [[link, what or "the figure", *counts] for what, counts in counted.items()]


def markdown(title: str, intro: list[str], sections: list[Section], end: list[str]) -> str:
    lines = [f"# {title}", "", *intro, ""]
    lines += markdown_table(("paper", "better in", *VERDICTS), [row for section in sections for row in section.counts()], 2)
    for section in sections:
        lines += [f"## {section.title}", "", *(f"- {note}" for note in section.notes), ""]
        for table in section.tables:
            lines += table.markdown()
    return "\n".join(lines + end) + "\n"


def anchor(heading: str) -> str:
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


STYLE = """body{font:15px/1.45 sans-serif;max-width:110em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border:1px solid #bbb;padding:.2em .5em}
th{background:#eee}td.figure{text-align:right}code{background:#f3f3f3}
.yes{background:#d9f2d9}.partly{background:#fbf3cf}.no{background:#f8d9d9}"""


def inline(text: str) -> str:
    """Code, emphasis and links of Markdown in HTML."""
    text = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", html.escape(text, quote=False))
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    return re.sub(r"\[([^]]*)\]\(([^)]*)\)", r'<a href="\2">\1</a>', text)


def html_page(title: str, page: str, pictures: dict[str, str]) -> str:
    """The HTML of a page of ours: headings, paragraphs, lists and tables. A heading may have a picture, after what stands below it."""
    out, listed, head, words, picture = [], False, True, 0, None
    for line in [*page.splitlines(), "# "]:
        if listed and not line.startswith("- "):
            out.append("</ul>")
            listed = False
        if line.startswith("#"):
            if picture:
                out.append(f'<p><img src="{picture}" alt=""></p>')
            level, _, text = line.partition(" ")
            picture = pictures.get(text)
            if text:
                out.append(f'<h{len(level)} id="{anchor(text)}">{inline(text)}</h{len(level)}>')
        elif line.startswith("- "):
            out += [] if listed else ["<ul>"]
            listed = True
            out.append(f"<li>{inline(line[2:])}</li>")
        elif line.startswith("|---"):
            words, head = line.count("|---") - line.count("---:"), False
        elif line.startswith("|"):
            if head:
                out.append("<table>")
            kind, cells = "th" if head else "td", line[1:-1].split("|")
            classes = [cell if cell in VERDICTS else "figure" if at >= words and not head else "" for at, cell in enumerate(cells)]
            out.append("<tr>" + "".join(f'<{kind} class="{name}">{inline(cell)}</{kind}>' for cell, name in zip(cells, classes)) + "</tr>")
        elif not line:
            out += [] if head else ["</table>"]
            head = True
        else:
            out.append(f"<p>{inline(line)}</p>")
    return f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>\n' + "\n".join(out) + "\n</html>\n"


def plot(table: Table, path: Path) -> bool:
    """Bars of the table's rows. Returns false without a library that draws, and without figures of ours."""
    rows = [row for row in table.rows if len(row.bars) > 1]
    if not rows:
        return False
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return False
    matplotlib.rcParams["svg.hashsalt"] = "papers"
    names = list(dict.fromkeys(name for row in rows for name in row.bars))
    figure, axis = pyplot.subplots(figsize=(max(6, len(rows) * 0.9), 4))
    for at, name in enumerate(names):
        points = [(place + at * 0.8 / len(names), row.bars[name]) for place, row in enumerate(rows) if name in row.bars]
        axis.bar(*zip(*points), width=0.8 / len(names), label=name, align="edge")
    axis.set_xticks([place + 0.4 for place in range(len(rows))], ["\n".join(row.cells[: table.words]) for row in rows], fontsize=5)
    axis.set_ylabel(table.unit)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
