"""Place boxes in columns so that arrows go right: longest path, then crossings are reduced by the middle of neighbors.

An arrow over several columns passes a point in each column between them, so it never runs through a box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Placed:
    """The left upper corner, and the size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: Mapping[str, Placed]
    routes: Sequence[tuple[int, Sequence[Placed]]]
    """For each arrow its number, and the places that it connects and passes."""
    width: float
    height: float


def place(
    sizes: Mapping[str, Size], arrows: Sequence[tuple[str, str]], last: Sequence[str], *, gap_x: float, gap_y: float
) -> Layout:
    """Place boxes; those in `last` go into the last column."""
    columns = _columns(list(sizes), arrows, last)
    paths = [_path(number, start, end, columns) for number, (start, end) in enumerate(arrows)]
    known = {**sizes, **{point: Size(0, 0) for path in paths for point in path[1:-1]}}
    columns |= {point: columns[path[0]] + step for path in paths for step, point in enumerate(path) if step}
    table = _ordered(columns, [pair for path in paths for pair in pairwise(path)])
    places, width, height = _placed(table, known, gap_x, gap_y)
    routes = [(number, [places[one] for one in path]) for number, path in enumerate(paths)]
    return Layout({key: places[key] for key in sizes}, routes, width, height)


def _columns(keys: Sequence[str], arrows: Sequence[tuple[str, str]], last: Sequence[str]) -> dict[str, int]:
    """The column of each box: after all boxes that point to it. The arrows have no cycle."""
    before: dict[str, list[str]] = {key: [] for key in keys}
    for start, end in arrows:
        before[end].append(start)
    found: dict[str, int] = {}

    def column(key: str) -> int:
        if key not in found:
            found[key] = 1 + max((column(one) for one in before[key]), default=-1)
        return found[key]

    most = max([column(key) for key in keys if key not in last], default=-1)
    return {**found, **{key: most + 1 for key in keys if key in last}}


def _path(number: int, start: str, end: str, columns: Mapping[str, int]) -> list[str]:
    between = range(columns[start] + 1, columns[end])
    return [start, *(f"{number} {column}" for column in between), end]


def _ordered(columns: Mapping[str, int], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The boxes and points of each column from top to bottom, with few crossings."""
    table: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for key, number in columns.items():
        table[number].append(key)
    best, fewest = [list(one) for one in table], _crossings(table, links)
    for turn in range(ROUNDS):
        forward = turn % 2 == 0
        for column in table if forward else reversed(table):
            rank = {key: place / len(one) for one in table for place, key in enumerate(one)}
            column.sort(key=partial(_pull, rank=rank, links=links, forward=forward))
        if (found := _crossings(table, links)) < fewest:
            best, fewest = [list(one) for one in table], found
    return best


def _pull(key: str, rank: Mapping[str, float], links: Sequence[tuple[str, str]], forward: bool) -> float:
    """Where a box wants to be: the middle of its neighbors on one side."""
    near = [rank[a] for a, b in links if b == key] if forward else [rank[b] for a, b in links if a == key]
    return sum(near) / len(near) if near else rank[key]


def _crossings(table: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    place = {key: number for column in table for number, key in enumerate(column)}
    column_of = {key: number for number, column in enumerate(table) for key in column}
    count = 0
    for number, (a, b) in enumerate(links):
        for c, d in links[number + 1 :]:
            count += column_of[a] == column_of[c] and (place[a] - place[c]) * (place[b] - place[d]) < 0
    return count


def _placed(
    table: Sequence[Sequence[str]], sizes: Mapping[str, Size], gap_x: float, gap_y: float
) -> tuple[dict[str, Placed], float, float]:
    heights = [sum(sizes[key].height for key in column) + gap_y * (len(column) - 1) for column in table]
    tallest = max(heights, default=0)
    places: dict[str, Placed] = {}
    x = 0.0
    for column, height in zip(table, heights, strict=True):
        width = max(sizes[key].width for key in column)
        y = (tallest - height) / 2
        for key in column:
            # As wide as the column, also a point of an arrow: the arrow is straight between the boxes.
            places[key] = Placed(x, y, width, sizes[key].height)
            y += sizes[key].height + gap_y
        x += width + gap_x
    return places, max(x - gap_x, 0), tallest
