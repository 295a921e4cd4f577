"""What the lab found, as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.charts import Line, line_chart
from ottla.lab.runs import Result


def unread_chart(results: Sequence[Result]) -> str:
    """The partitions that nobody reads, over time, as SVG."""
    first = results[0]
    return line_chart(
        title=f"Partitions that nobody reads: {first.scenario}",
        subtitle=f"{first.members} members, {first.partitions} partitions, seed {first.seed}",
        lines=[Line(one.design, list(one.unread)) for one in results],
        unit="partitions",
    )
