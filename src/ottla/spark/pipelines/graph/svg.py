"""Draw the boxes and arrows of a pipeline. The picture follows the light or dark color scheme of its viewer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ottla.charts import DARK, LIGHT
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.graph.layout import Placed, Size, place
from ottla.spark.pipelines.graph.parts import DEAD, SINK, SOURCE, STEP, TABLE, Box, arrows, boxes

MARGIN, TOP = 28, 84
GAP_X, GAP_Y = 72, 26
LINE, PAD = 17, 14
NARROW, WIDE = 130, 270
TITLE_CHARACTER, CHARACTER = 8.6, 6.9

#: Light and dark: the edge and the inside of a box.
_COLOURS = {
    SOURCE: (("#3b7dd8", "#eef4fd"), ("#5b9cf0", "#1a2638")),
    TABLE: (("#646b78", "#f3f4f6"), ("#98a0ae", "#20242c")),
    STEP: (("#1b8a80", "#ecf7f6"), ("#3fc4b8", "#152928")),
    SINK: (("#7b3fb5", "#f5effb"), ("#b683ea", "#251c30")),
    DEAD: (("#b97f12", "#fdf6e7"), ("#e6b85c", "#2d2618")),
}
_WORDS = {SOURCE: "source", TABLE: "table", STEP: "step", SINK: "sink", DEAD: "broken records"}
_STYLE = """\
text{{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:{ink}}}
.bg{{fill:{paper}}} text.head{{font-size:17px;font-weight:600}} text.name{{font-size:14px;font-weight:600}}
.soft{{fill:{soft}}} .box{{stroke-width:1.5}} .arrow{{fill:none;stroke:{soft};stroke-width:1.5}}
.arrow.table{{stroke-dasharray:2 4;stroke-linecap:round}} .arrow.dead{{stroke-dasharray:6 4}} .tip{{fill:{soft}}}
"""


def draw(pipeline: Pipeline) -> str:
    """The picture of a pipeline, as SVG."""
    parts = boxes(pipeline)
    links = arrows(pipeline)
    last = [one.key for one in parts if one.kind in (SINK, DEAD)]
    sizes = {one.key: _size(one) for one in parts}
    found = place(sizes, [(one.start, one.end) for one in links], last, gap_x=GAP_X, gap_y=GAP_Y)
    width = max(found.width + 2 * MARGIN, 420)
    height = found.height + TOP + MARGIN
    drawn = [_arrow(route, links[number].kind) for number, route in found.routes]
    drawn += [_box(one, found.boxes[one.key]) for one in parts]
    head = f"<title>{escape(pipeline.name)}</title><desc>{escape(_summary(pipeline))}</desc>"
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">{head}',
        f"<style>\n{_rules(LIGHT, 0)}@media (prefers-color-scheme: dark){{\n{_rules(DARK, 1)}}}\n</style>",
        f'<rect class="bg" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="head" x="{MARGIN}" y="36">{escape(pipeline.name)}</text>',
        f'<text class="soft" x="{MARGIN}" y="58">{escape(_summary(pipeline))}</text>',
        *drawn,
        "</svg>\n",
    ]
    return "\n".join(text)


def _summary(pipeline: Pipeline) -> str:
    parts = (
        ("source", pipeline.sources),
        ("table", pipeline.tables),
        ("step", pipeline.steps),
        ("sink", pipeline.sinks),
    )
    counts = [f"{len(some)} {noun}{'' if len(some) == 1 else 's'}" for noun, some in parts if some]
    return f"{', '.join(counts)}; trigger {pipeline.trigger}"


def _rules(scheme: dict[str, str], index: int) -> str:
    rules = _STYLE.format(**scheme)
    for kind, colours in _COLOURS.items():
        edge, inside = colours[index]
        rules += f".box.{kind}{{stroke:{edge};fill:{inside}}} .word.{kind}{{fill:{edge}}}\n"
        if kind == DEAD:
            rules += f".arrow.{kind}{{stroke:{edge}}} .tip.{kind}{{fill:{edge}}}\n"
    return rules


def _size(box: Box) -> Size:
    longest = max([len(box.title) * TITLE_CHARACTER, *(len(line) * CHARACTER for line in (*box.lines, box.kind))])
    width = min(max(longest + 2 * PAD, NARROW), WIDE)
    return Size(width, PAD * 2 + LINE * (2 + len(box.lines)) - 6)


def _box(box: Box, at: Placed) -> str:
    x, y, room = at.x + MARGIN, at.y + TOP, at.width - 2 * PAD
    shown = [(f"word {box.kind}", _WORDS[box.kind]), ("name", _cut(box.title, room / TITLE_CHARACTER))]
    shown += [("soft", _cut(line, room / CHARACTER)) for line in box.lines]
    texts = [
        f'<text class="{style}" x="{x + PAD:.1f}" y="{y + PAD + 8 + LINE * number:.1f}">{text}</text>'
        for number, (style, text) in enumerate(shown)
    ]
    told = escape("\n".join(filter(None, (box.title, *box.lines, box.more))), quote=False)
    frame = f'x="{x:.1f}" y="{y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="8"'
    return "\n".join([f'<g><title>{told}</title><rect class="box {box.kind}" {frame}/>', *texts, "</g>"])


def _cut(text: str, most: float) -> str:
    return escape(text if len(text) <= most + 0.5 else f"{text[: max(int(most) - 1, 1)]}…")


def _arrow(route: Sequence[Placed], kind: str) -> str:
    """A curve from the right side of the first place to the left side of the last, flat where it passes columns."""
    start, *between, end = route
    x, y = start.x + start.width + MARGIN, start.middle + TOP
    path = [f"M{x:.1f} {y:.1f}"]
    for one in [*between, end]:
        to_x, to_y = one.x + MARGIN - (7 if one is end else 0), one.middle + TOP
        half = (to_x - x) / 2
        path.append(f"C{x + half:.1f} {y:.1f} {to_x - half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
        if one is not end:
            x += one.width
            path.append(f"H{x:.1f}")
    tip = f'<path class="tip {kind}" d="M{x + 7:.1f} {y:.1f}l-9 -4.5v9z"/>'
    return f'<path class="arrow {kind}" d="{"".join(path)}"/>{tip}'
