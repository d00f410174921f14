"""The picture of a paper: how many times better each figure of ours is than the paper's, on a logarithmic axis, a line a table.

It is drawn here and not by a library, so that the same figures give the same bytes everywhere.
"""

from __future__ import annotations

import html
import math

from pages import FORMER, Section

LEFT, WIDTH, RIGHT, TOP, STEP = 250, 520, 16, 34, 17
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
BETTER, WORSE, FAINT = "#1f6f8b", "#c1440e", "#999"


def points(section: Section) -> list[tuple[str, list[tuple[float, bool]]]]:
    """A line for each table and what is judged there: ratios, and whether they are of RTL that has changed since."""
    lines = []
    for table in section.tables:
        for at, what in enumerate(table.judged):
            found = [(ratio, row.verdicts[at] == FORMER) for row in table.rows for ratio in getattr(row.verdicts[at], "ratios", ())]
            if found:
                lines.append((f"{table.number}: {what}" if what else f"table {table.number}", found))
    return lines


def picture(section: Section) -> str | None:
    lines = points(section)
    if not lines:
        return None
    all_ratios = [ratio for _, found in lines for ratio, _ in found]
    low = max((tick for tick in TICKS if tick <= min(*all_ratios, 0.5)), default=TICKS[0])
    high = min((tick for tick in TICKS if tick >= max(*all_ratios, 2)), default=TICKS[-1])
    at = lambda ratio: round(LEFT + WIDTH * math.log(min(max(ratio, low), high) / low) / math.log(high / low), 1)  # noqa: E731
    bottom = TOP + STEP * len(lines)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{bottom + 30}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="14" fill="#333">{html.escape(section.title)}: how many times better ours is, ours ÷ paper '
        "(paper ÷ ours where less is better)</text>",
    ]
    for tick in (tick for tick in TICKS if low <= tick <= high):
        colour, width = ("#333", 1.5) if tick == 1 else ("#ddd", 1)
        out.append(f'<path d="M{at(tick)} {TOP - 10}V{bottom}" stroke="{colour}" stroke-width="{width}"/>')
        out.append(f'<text x="{at(tick)}" y="{bottom + 14}" text-anchor="middle" fill="#333">{tick:g}</text>')
    for number, (name, found) in enumerate(lines):
        y = TOP + STEP * number
        out.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" fill="#333">{html.escape(name)}</text>')
        for ratio, former in sorted(set(found)):
            colour = FAINT if former else BETTER if ratio > 1 else WORSE
            fill = "none" if former else colour
            out.append(f'<circle cx="{at(ratio)}" cy="{y}" r="3.5" fill="{fill}" fill-opacity=".6" stroke="{colour}"/>')
    if any(former for _, found in lines for _, former in found):
        out.append(f'<text x="{LEFT}" y="{bottom + 27}" fill="#333">Empty circles: of RTL that has changed since.</text>')
    return "\n".join([*out, "</svg>", ""])
