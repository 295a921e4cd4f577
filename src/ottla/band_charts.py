"""Charts of who had what when, as SVG: a row for each thing, a color for each owner, and marks with links. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ottla.charts import LEFT, LINES, RIGHT, WIDTH, Picture, TimeAxis, moment
from ottla.types import Millis

ROW = 20


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a row has an owner; `owner` is None if nobody has it, and `colour` counts the owners."""

    start: Millis
    end: Millis
    owner: str | None
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Band:
    """A row with its owners over time."""

    label: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, from `start` to `end`, with a link."""

    start: Millis
    end: Millis
    text: str
    link: str


def band_chart(
    *,
    title: str,
    subtitle: str,
    first: Millis,
    last: Millis,
    bands: Sequence[Band],
    marks: Sequence[Mark],
    legend: Sequence[tuple[int, str]],
) -> str:
    """Rows with an owner at each time, and marks over all rows. A mark opens its link.

    `legend` has the number of each color and its owner.
    """
    picture = Picture(title, subtitle, None, height=_bands_height(legend, len(bands)))
    items = [(f"l{colour % len(LINES)}", label) for colour, label in legend]
    picture.legend([*items, ("nobody", "nobody"), ("mark", "rebalance")], None)
    top = 116.0 + 20 * (picture.legend_rows - 1)
    bottom = top + ROW * max(len(bands), 1)
    axis = TimeAxis(first, max(last, first + 100))
    for place, band in enumerate(bands):
        y = top + ROW * place
        picture.text(LEFT - 8, y + 14, _cut(band.label, 11), "soft", "end", hover=band.label)
        for span in band.spans:
            _draw_span(picture, axis, band.label, span, y)
    for mark in marks:
        _draw_mark(picture, axis, mark, top, bottom)
    axis.draw(picture, bottom, ticks_from=top)
    return picture.done()


def _bands_height(legend: Sequence[tuple[int, str]], rows: int) -> int:
    wide = sum(36 + 7 * len(label) for _, label in legend) + 200
    return 180 + 20 * (wide // (WIDTH - LEFT - RIGHT)) + ROW * max(rows, 1)


def _draw_span(picture: Picture, axis: TimeAxis, label: str, span: Span, y: float) -> None:
    left, right = axis.x(span.start), axis.x(span.end)
    wide = max(right - left, 1)
    style = "nobody" if span.owner is None else f"l{span.colour % len(LINES)}"
    text = escape(f"{label}: {span.owner or 'nobody'}\nfrom {moment(span.start)}\nto {moment(span.end)} UTC")
    picture.add(
        f'<rect class="band {style}" x="{left:.1f}" y="{y + 1:.1f}" width="{wide:.1f}" height="{ROW - 2}">'
        f"<title>{text}</title></rect>"
    )


def _draw_mark(picture: Picture, axis: TimeAxis, mark: Mark, top: float, bottom: float) -> None:
    left, right = axis.x(mark.start), axis.x(mark.end)
    wide = max(right - left, 1)
    text = escape(f"{moment(mark.start)} UTC\n{mark.text}")
    stop = f'<rect class="stop" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{bottom - top:.1f}"/>'
    rule = f'<path class="rule" d="M{left:.1f} {top - 2:.1f}V{bottom:.1f}"/>'
    # A large invisible part is easier to hit than the mark.
    hit = f'<rect class="hit" x="{left - 7:.1f}" y="{top - 18:.1f}" width="14" height="{bottom - top + 18:.1f}"/>'
    arrow = f'<path class="mark" d="M{left - 6:.1f} {top - 14:.1f}h12l-6 11z"/>'
    label = escape(mark.text, {'"': "&quot;"})
    picture.add(
        f'<a href="{escape(mark.link, {chr(34): "&quot;"})}" aria-label="{label}">'
        f"<title>{text}</title>{stop}{rule}{arrow}{hit}</a>"
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"…{text[1 - length :]}"
