"""Tables of papers beside ours, and pages of them in Markdown and HTML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

MISSING = "not measured"
FORMER = "former RTL"  # it would be a yes, but the RTL has changed since
VERDICTS = ("yes", "partly", "no", FORMER, MISSING)
NONE = "–"  # nothing to compare


def markdown_table(head, lines, words: int) -> list[str]:
    """A table whose first `words` columns are text, and whose others are figures."""
    rows = ["|" + "|".join(cells) + "|" for cells in (head, *lines)]
    return [rows[0], "|---" * words + "|---:" * (len(head) - words) + "|", *rows[1:], ""]


class Verdict(str):
    """A verdict, and how many times better than the paper's each figure of ours is."""

    ratios: tuple[float, ...] = ()

    @classmethod
    def of(cls, word: str, ratios=()) -> Verdict:
        found = cls(word)
        found.ratios = tuple(ratios)
        return found


def verdict(ours, paper: float, less: bool = False) -> Verdict:
    """Says if ours beats the paper's figure: one figure, or one for each part, which may differ."""
    figures = list(ours.values()) if isinstance(ours, dict) else [ours]
    if not figures or None in figures:
        return Verdict(MISSING)
    better = {figure < paper if less else figure > paper for figure in figures}
    word = "partly" if len(better) > 1 else "yes" if better.pop() else "no"
    return Verdict.of(word, (paper / figure if less else figure / paper for figure in figures))


@dataclass
class Row:
    cells: list[str]
    verdicts: list[str]
    sources: list[str]  # links to records, or the label of what would measure it


@dataclass
class Table:
    """One table of a paper. `judged` names what each verdict is about, and `at` the columns that they stand in, if they have none of
    their own: a table that is too wide is read sideways."""

    number: str
    title: str
    place: str
    head: tuple[str, ...]
    words: int
    judged: tuple[str, ...]
    notes: tuple[str, ...] = ()
    at: tuple[int, ...] = ()
    reproduce: str = ""
    rows: list[Row] = field(default_factory=list)
    footnotes: dict[str, str] = field(default_factory=dict)

    def label(self, text: str) -> str:
        """The label of a footnote; the same text has the same label."""
        return self.footnotes.setdefault(text, f"({len(self.footnotes) + 1})")

    def missing(self, command: str) -> str:
        return f"{MISSING} {self.label(f'`{command}` measures it.')}"

    def erratum(self, printed: object, text: str | None) -> str:
        """A figure as printed, marked if it is wrong."""
        return f"{printed} † {self.label(f'Erratum: {text}.')}" if text else str(printed)

    def common(self) -> list[str]:
        """The sources that all rows have. A column need not repeat them."""
        return [source for source in self.rows[0].sources if all(source in row.sources for row in self.rows)] if self.rows else []

    def own(self, row: Row) -> str:
        """The sources that not all rows have."""
        return "; ".join(source for source in row.sources if source not in self.common())

    def columns(self) -> tuple[str, ...]:
        judged = () if self.at else tuple(f"ours better: {what}" if what else "ours better" for what in self.judged)
        return (*self.head, *judged, *(("record",) if any(map(self.own, self.rows)) else ()))

    def lines(self) -> list[list[str]]:
        lines, column = [], any(map(self.own, self.rows))
        for row in self.rows:
            cells = list(row.cells)
            for where, given in zip(self.at, row.verdicts):
                cells[where] += "" if given in (NONE, MISSING) else f", {given}"
            lines.append([*cells, *(() if self.at else row.verdicts), *((self.own(row) or NONE,) if column else ())])
        return lines

    def markdown(self) -> list[str]:
        lines = [f"### Table {self.number}: {self.title}", "", f"{self.place}. {' '.join(self.notes)}".strip(), ""]
        lines += markdown_table(self.columns(), self.lines(), self.words)
        lines += [f"- {label} {text}" for text, label in self.footnotes.items()]
        records = [source for source in self.common() if "](" in source]
        lines += [f"- Record of all rows: {'; '.join(records)}."] if records else []
        lines += [f"- Reproduce a row: {self.reproduce}"] if self.reproduce else []
        return [*lines, ""]


def narrowest(columns, lines) -> int:
    """Pixels that a table needs at least, by the longest words that no browser breaks, with 16 for the space beside a cell."""
    shown = lambda cell: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell)  # noqa: E731
    words = lambda cell: re.split(r"\s|(?<=-)(?=[a-zA-Z])", shown(cell))  # noqa: E731
    return sum(27 + max(9 * len(word) for row in (columns, *lines) for word in words(row[at])) for at in range(len(columns)))


@dataclass
class Section:
    """A paper with its tables."""

    key: str
    title: str
    notes: list[str]
    tables: list[Table]
    picture: str = ""  # its address from the page

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
        if section.picture:
            lines += [f"![Our figures beside those of {section.title}, by table]({section.picture})", ""]
        for table in section.tables:
            lines += table.markdown()
    return "\n".join(lines + end) + "\n"


def anchor(heading: str) -> str:
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


STYLE = """body{font:15px/1.45 sans-serif;max-width:110em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border:1px solid #bbb;padding:.2em .5em}
th{background:#eee}td.figure{text-align:right}code{background:#f3f3f3}
.yes{background:#d9f2d9}.partly{background:#fbf3cf}.no,.former{background:#f8d9d9}"""


def inline(text: str) -> str:
    """Code, emphasis and links of Markdown in HTML."""
    text = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", html.escape(text, quote=False))
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"!\[([^]]*)\]\(([^)]*)\)", r'<img src="\2" alt="\1">', text)
    return re.sub(r"\[([^]]*)\]\(([^)]*)\)", r'<a href="\2">\1</a>', text)


def html_class(cell: str, figure: bool) -> str:
    """A verdict's class, be it alone in its cell or at its end."""
    given = next((one for one in VERDICTS[:-1] if cell == one or cell.endswith(f", {one}")), "")
    return " ".join(filter(None, ("figure" if figure else "", given.split(" ")[0])))


def html_page(title: str, page: str) -> str:
    """The HTML of a page of ours: headings, paragraphs, lists, tables and pictures."""
    out, listed, head, words = [], False, True, 0
    for line in [*page.splitlines(), "", "# "]:
        if listed and not line.startswith("- "):
            out.append("</ul>")
            listed = False
        if line.startswith("#"):
            level, _, text = line.partition(" ")
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
            classes = [html_class(cell, at >= words and not head) for at, cell in enumerate(cells)]
            out.append("<tr>" + "".join(f'<{kind} class="{name}">{inline(cell)}</{kind}>' for cell, name in zip(cells, classes)) + "</tr>")
        elif not line:
            out += [] if head else ["</table>"]
            head = True
        else:
            out.append(f"<p>{inline(line)}</p>")
    return f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>\n' + "\n".join(out) + "\n</html>\n"
