"""Charts over time as SVG: bars of counts, and lines of values. No I/O. Bands of owners are in `band_charts`.

A chart needs only a browser: it follows the light or dark color scheme, and shows numbers on mouse hover. Give a new
series its two colors in `_COLOURS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from ottla.types import Millis

WIDTH = 960
LEFT, RIGHT = 68, 34
#: Light and dark colors by name, distinguishable with red-green color blindness.
_COLOURS = {
    "arrived": ("#3b7dd8", "#5b9cf0"),
    "duplicates": ("#a9c3e6", "#3d5a85"),
    "dead": ("#e0a93b", "#e6b85c"),
    "pending": ("#c4c7cc", "#565c66"),
    "filtered": ("#dfe3ea", "#3a3f48"),
    "lost": ("#c8264b", "#ff5c7c"),
    "unkeyed": ("#8a5a2b", "#c08a54"),
    "repeated": ("#7b3fb5", "#b683ea"),
    "out_of_order": ("#1b8a80", "#3fc4b8"),
    "late": ("#d46a1f", "#f0934e"),
}
LINES = (
    ("#3b7dd8", "#5b9cf0"),
    ("#d46a1f", "#f0934e"),
    ("#1b8a80", "#3fc4b8"),
    ("#7b3fb5", "#b683ea"),
    ("#c8264b", "#ff5c7c"),
    ("#8a8f2b", "#c5cb57"),
    ("#8a5a2b", "#c08a54"),
    ("#5b6472", "#9aa4b2"),
)
_STYLE = """\
text{{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:{ink}}}
.bg{{fill:{paper}}} text.title{{font-size:17px;font-weight:600}} .good{{fill:{good}}} .bad{{fill:{bad};font-weight:600}}
.soft{{fill:{soft}}} .grid{{stroke:{grid};stroke-width:1}} .axis{{stroke:{soft};stroke-width:1}}
.outline{{fill:none;stroke:{ink};stroke-width:1.5}} .line{{fill:none;stroke-width:1.8;stroke-linejoin:round}}
.hit{{fill:transparent}} .hit:hover{{fill:{ink};fill-opacity:.07}}
.band{{stroke:{paper};stroke-width:1}} .stop{{fill:{ink};fill-opacity:.25}} .nobody{{fill:{grid}}}
.mark{{fill:{bad}}} .rule{{stroke:{bad};stroke-width:1;stroke-dasharray:2 3;fill:none}}
"""
LIGHT = {
    "ink": "#1f2430",
    "paper": "#ffffff",
    "soft": "#646b78",
    "grid": "#e7e9ee",
    "good": "#1d7a45",
    "bad": "#b3183c",
}
DARK = {
    "ink": "#e8eaf0",
    "paper": "#14171d",
    "soft": "#98a0ae",
    "grid": "#2a2f39",
    "good": "#56c98a",
    "bad": "#ff7590",
}
_SECOND: Millis = 1000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86_400 * _SECOND
#: Readable bucket widths and tick distances.
_STEPS: tuple[Millis, ...] = (
    *(100, 200, 500),
    *(number * _SECOND for number in (1, 2, 5, 10, 15, 30)),
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 7, 14, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Series:
    """Counts by bucket; `name` chooses the color."""

    name: str
    label: str
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time; each one is valid until the next."""

    label: str
    points: Sequence[tuple[Millis, float]]


def bucket_width(first: Millis, last: Millis, *, at_most: int = 60) -> Millis:
    """The smallest readable bucket width for at most `at_most` buckets.

    >>> bucket_width(0, 25_000), bucket_width(0, 86_400_000), bucket_width(5, 5)
    (500, 1800000, 100)
    """
    for step in _STEPS:
        if last // step - first // step < at_most:
            return step
    return math.ceil((last - first + 1) / at_most / _DAY) * _DAY


# ── bars ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def bar_chart(
    *,
    title: str,
    subtitle: str,
    is_good: bool,
    starts: Sequence[Millis],
    width_ms: Millis,
    stacked: Sequence[Series],
    outline: Series,
    findings: Sequence[Series],
) -> str:
    """Stacked bars with an outline of the expected sum; below, the findings with their own scale.

    One lost record among a million would be invisible on a shared scale.
    """
    picture = Picture(title, subtitle, is_good, height=470)
    picture.legend([(one.name, one.label) for one in (*stacked, *findings)], outline.label)
    if not starts:
        picture.text(WIDTH / 2, 240, "there are no records", "soft", "middle")
        return picture.done()
    axis = TimeAxis(min(starts), max(starts) + width_ms)
    top = _Panel(picture, axis, 112, 308, max(*outline.values, *_sums(stacked), 1), "records")
    top.frame()
    top.bars(starts, width_ms, stacked)
    top.steps(starts, width_ms, outline)
    low = _Panel(picture, axis, 344, 422, max(*_sums(findings), 1), "found")
    low.frame()
    if any(_sums(findings)):
        low.bars(starts, width_ms, findings, smallest=2.5)
    else:
        picture.text((LEFT + WIDTH - RIGHT) / 2, 387, "nothing", "good" if is_good else "soft", "middle")
    axis.draw(picture, 422, ticks_from=112)
    _hits(picture, axis, starts, width_ms, [outline, *stacked, *findings])
    return picture.done()


def _sums(series: Sequence[Series]) -> list[int]:
    return [sum(values) for values in zip(*(one.values for one in series), strict=True)] or [0]


def _hits(
    picture: Picture, axis: TimeAxis, starts: Sequence[Millis], width_ms: Millis, series: Sequence[Series]
) -> None:
    """Invisible columns that show their numbers on mouse hover."""
    for index, start in enumerate(starts):
        numbers = [f"{one.label}: {one.values[index]:,}" for one in series if one.values[index]]
        text = escape("\n".join([moment(start), *numbers]))
        left, right = axis.x(start), axis.x(start + width_ms)
        picture.add(
            f'<rect class="hit" x="{left:.1f}" y="112" width="{right - left:.1f}" height="310">'
            f"<title>{text}</title></rect>"
        )


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def line_chart(*, title: str, subtitle: str, lines: Sequence[Line], unit: str) -> str:
    """Step lines, the first on top of the others; with many lines, colors repeat."""
    picture = Picture(title, subtitle, None, height=400)
    picture.legend([(f"l{index % len(LINES)}", one.label) for index, one in enumerate(lines)], None)
    points = [point for one in lines for point in one.points]
    if not points:
        picture.text(WIDTH / 2, 220, "there is nothing to show", "soft", "middle")
        return picture.done()
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    axis = TimeAxis(first, max(last, first + 100))
    top = 112 + 20 * (picture.legend_rows - 1)
    panel = _Panel(picture, axis, top, 352, max(*(value for _, value in points), 1), unit)
    panel.frame()
    for index, one in reversed(list(enumerate(lines))):
        panel.line(one, f"l{index % len(LINES)}", last)
    axis.draw(picture, 352, ticks_from=top)
    return picture.done()


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Picture:
    """The drawing: title, legend, and added parts."""

    def __init__(self, title: str, subtitle: str, is_good: bool | None, *, height: int) -> None:
        self._height = height
        self._parts: list[str] = []
        self.legend_rows = 1
        tone = {None: "soft", True: "good", False: "bad"}[is_good]
        self._head = f"<title>{escape(title)}</title><desc>{escape(subtitle)}</desc>"
        self.text(LEFT, 34, title, "title")
        self.text(LEFT, 58, subtitle, tone)

    def add(self, part: str) -> None:
        self._parts.append(part)

    def text(
        self, x: float, y: float, text: str, style: str = "", anchor: str = "start", *, hover: str | None = None
    ) -> None:
        title = f"<title>{escape(hover)}</title>" if hover is not None else ""
        self.add(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}{title}</text>')

    def legend(self, items: Iterable[tuple[str, str]], outline: str | None) -> None:
        x, y = float(LEFT), 84.0
        if outline is not None:
            self.add(f'<path class="outline" d="M{x} {y - 4}h14"/>')
            self.text(x + 20, y, outline)
            x += 38 + 7 * len(outline)
        for name, label in items:
            wide = 36 + 7 * len(label)
            if x + wide > WIDTH - RIGHT:
                x, y = float(LEFT), y + 20
                self.legend_rows += 1
            self.add(f'<rect class="{name}" x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2"/>')
            self.text(x + 18, y, label)
            x += wide

    def done(self) -> str:
        style = _rules(LIGHT, 0) + "@media (prefers-color-scheme: dark){\n" + _rules(DARK, 1) + "}\n"
        size = f'width="{WIDTH}" height="{self._height}" viewBox="0 0 {WIDTH} {self._height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{self._head}\n<style>\n{style}</style>\n'
            f'<rect class="bg" width="{WIDTH}" height="{self._height}"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def _rules(scheme: dict[str, str], index: int) -> str:
    bars = "".join(f".{name}{{fill:{colours[index]}}}" for name, colours in _COLOURS.items())
    lines = "".join(
        f".l{number}{{fill:{colours[index]}}}.line.l{number}{{fill:none;stroke:{colours[index]}}}"
        for number, colours in enumerate(LINES)
    )
    return f"{_STYLE.format(**scheme)}{bars}\n{lines}\n"


class TimeAxis:
    """The horizontal axis."""

    def __init__(self, first: Millis, last: Millis) -> None:
        self._first, self._last = first, last
        self._step = next((step for step in _STEPS if (last - first) / step <= 9), _STEPS[-1])
        while (last - first) / self._step > 12:
            self._step *= 2

    def x(self, at: Millis) -> float:
        return LEFT + (WIDTH - RIGHT - LEFT) * (at - self._first) / (self._last - self._first)

    def draw(self, picture: Picture, y: float, *, ticks_from: float) -> None:
        picture.add(f'<path class="axis" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        tick = -(-self._first // self._step) * self._step
        while tick <= self._last:
            x = self.x(tick)
            picture.add(f'<path class="axis" d="M{x:.1f} {y:.1f}v5"/>')
            picture.text(x, y + 19, self._label(tick), "soft", "middle")
            tick += self._step
        # Times since the start of something, not dates.
        is_relative = self._last < 365 * _DAY
        told = "time since the start" if is_relative else f"from {moment(self._first)} to {moment(self._last)} UTC"
        picture.text(WIDTH - RIGHT, y + 38, told, "soft", "end")

    def _label(self, at: Millis) -> str:
        moment = _utc(at)
        if self._step >= _DAY:
            return f"{moment:%d %b}"
        if self._step >= _MINUTE:
            return f"{moment:%H:%M}"
        return f"{moment:%H:%M:%S}" if self._step >= _SECOND else f"{moment:%M:%S}.{moment.microsecond // 100_000}"


class _Panel:
    """Bars or lines between two heights, on a scale from 0."""

    def __init__(self, picture: Picture, axis: TimeAxis, top: float, bottom: float, largest: float, label: str) -> None:
        self._picture, self._axis, self._top, self._bottom, self._label = picture, axis, top, bottom, label
        self._step = _value_step(largest, 5 if bottom - top > 120 else 2)
        self._most = math.ceil(largest / self._step) * self._step

    def y(self, value: float) -> float:
        return self._bottom - (self._bottom - self._top) * value / self._most

    def frame(self) -> None:
        for index in range(round(self._most / self._step) + 1):
            value = index * self._step
            self._picture.add(f'<path class="grid" d="M{LEFT} {self.y(value):.1f}H{WIDTH - RIGHT}"/>')
            self._picture.text(LEFT - 8, self.y(value) + 4, short_number(value), "soft", "end")
        self._picture.text(LEFT, self._top - 8, self._label, "soft")

    def bars(self, starts: Sequence[Millis], width_ms: Millis, series: Sequence[Series], smallest: float = 0) -> None:
        """Stacked bars; `smallest` keeps small counts visible."""
        for index, start in enumerate(starts):
            left, right = self._axis.x(start), self._axis.x(start + width_ms)
            gap = min(1.5, (right - left) / 6)
            top = self._bottom
            for one in series:
                if not one.values[index]:
                    continue
                height = max(self._bottom - self.y(one.values[index]), smallest)
                top -= height
                self._picture.add(
                    f'<rect class="{one.name}" x="{left + gap:.1f}" y="{top:.1f}" '
                    f'width="{max(right - left - 2 * gap, 1):.1f}" height="{height:.1f}"/>'
                )

    def steps(self, starts: Sequence[Millis], width_ms: Millis, series: Series) -> None:
        """The outline; missing buckets are empty."""
        path, end = [], None
        for start, value in zip(starts, series.values, strict=True):
            left, right, y = self._axis.x(start), self._axis.x(start + width_ms), self.y(value)
            if end != start:
                path.append((f"V{self._bottom:.1f}" if end is not None else "") + f"M{left:.1f} {self._bottom:.1f}")
            path.append(f"V{y:.1f}H{right:.1f}")
            end = start + width_ms
        path.append(f"V{self._bottom:.1f}")
        self._picture.add(f'<path class="outline" d="{"".join(path)}"/>')

    def line(self, line: Line, style: str, last: Millis) -> None:
        if not line.points:
            return
        (at, value), *others = line.points
        path = [f"M{self._axis.x(at):.1f} {self.y(value):.1f}"]
        path += [f"H{self._axis.x(at):.1f}V{self.y(value):.1f}" for at, value in others]
        path.append(f"H{self._axis.x(last):.1f}")
        text = escape(line.label)
        self._picture.add(f'<path class="line {style}" d="{"".join(path)}"><title>{text}</title></path>')


def _value_step(largest: float, most: int) -> int:
    """1, 2 or 5 times a power of ten, for a limited number of steps."""
    raw = max(largest / most, 1)
    power = 10 ** math.floor(math.log10(raw))
    return int(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw))


def short_number(value: float) -> str:
    """
    >>> short_number(0), short_number(1500), short_number(2_000_000)
    ('0', '1.5k', '2M')
    """
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.2f}".rstrip("0").rstrip(".") + unit
    return f"{value:g}"


def _utc(at: Millis) -> datetime:
    return datetime.fromtimestamp(at / 1000, tz=UTC)


def moment(at: Millis) -> str:
    moment = _utc(at)
    tenths = moment.microsecond // 100_000
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{tenths}" if tenths else "")
