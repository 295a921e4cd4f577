"""Draw a pipeline as SVG, without Spark: sources and tables on the left, steps, then sinks and dead letters.

    Path("orders.svg").write_text(draw(load("orders.toml")))

`parts.py` makes boxes and arrows of a declaration, `layout.py` places them, `svg.py` draws them.
"""

from ottla.spark.pipelines.graph.svg import draw

__all__ = ["draw"]
