"""The picture of a pipeline: what is drawn, and that it is readable."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.main import main
from ottla.spark.pipelines import load
from ottla.spark.pipelines.graph import draw
from ottla.spark.pipelines.graph.layout import Layout, Size, place
from ottla.spark.pipelines.graph.parts import arrows, boxes, named_in

SVG = "{http://www.w3.org/2000/svg}"
PIPELINE = """
name = "shop <1>"
checkpoint = "state"
bootstrap_servers = "localhost:9092"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, customer STRING, at TIMESTAMP"
event_time = "at"

[[source]]
name = "clicks"
pattern = "clicks-.*"
format = "text"
on_error = "skip"

[[table]]
name = "customers"
format = "csv"
path = "customers.csv"

[[step]]
name = "unique_orders"
input = "orders"
dedupe = ["id"]
within = "1 hour"

[[step]]
name = "named"
join = "customers"
on = ["customer"]

[[step]]
name = "pages"
sql = "SELECT value FROM clicks -- JOIN orders"

[[step]]
name = "both"
sql_file = "both.sql"

[[expect]]
name = "has_customer"
input = "orders"
that = "customer IS NOT NULL"

[[sink]]
name = "named"
input = "named"
format = "parquet"
path = "out"

[[sink]]
name = "pages"
format = "topic"
topic = "pages"

[dead_letters]
topic = "{topic}.dead"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shop.toml").write_text(PIPELINE)
    (tmp_path / "customers.csv").write_text("customer\n")
    (tmp_path / "both.sql").write_text("SELECT p.value FROM pages p CROSS JOIN (SELECT 1 FROM unique_orders)")
    return tmp_path / "shop.toml"


def test_boxes_and_arrows(file: Path) -> None:
    pipeline = load(file)
    assert {(one.start, one.end, one.kind) for one in arrows(pipeline)} == {
        ("source orders", "step unique_orders", ""),
        ("step unique_orders", "step named", ""),
        ("table customers", "step named", "table"),
        ("source clicks", "step pages", ""),
        ("step pages", "step both", ""),
        ("step unique_orders", "step both", ""),
        ("step named", "sink named", ""),
        ("step both", "sink pages", ""),
        ("source orders", "dead", "dead"),
    }
    texts = {one.key: " / ".join(one.lines) for one in boxes(pipeline)}
    shared = "one read for named, dead letters"
    assert texts["source orders"] == f"json from orders / event time at / rules: has_customer / {shared}"
    assert texts["source clicks"] == "text from topics like clicks-.*"
    assert texts["step unique_orders"] == "dedupe by id / within 1 hour"
    assert texts["sink pages"] == "topic pages / a read of its own"
    assert texts["dead"] == "topic {topic}.dead / exactly-once"


def test_the_picture_is_complete_and_needs_nothing_else(file: Path) -> None:
    picture = draw(load(file))
    root = ElementTree.fromstring(picture)
    drawn = [one for one in root.iter(f"{SVG}g") if one.find(f"{SVG}rect") is not None]
    assert len(drawn) == 10
    assert len([one for one in root.iter(f"{SVG}path") if "arrow" in one.get("class", "")]) == 9
    tooltips = [one.findtext(f"{SVG}title") or "" for one in drawn]
    assert any("SELECT value FROM clicks -- JOIN orders" in text for text in tooltips)
    assert any("id BIGINT NOT NULL" in text for text in tooltips)
    assert "shop &lt;1&gt;" in picture
    assert "prefers-color-scheme: dark" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT * FROM a, b x , `c`", ["a", "b", "c"]),
        ("select * from A as x left join B on x.c = B.c", ["a", "b"]),
        ("WITH c AS (SELECT 1 FROM a) SELECT b FROM c", ["a", "c"]),
        ("SELECT 'from b', b /* from c */ FROM a", ["a"]),
        ("SELECT EXTRACT(day FROM at) FROM a", ["a"]),
        ("", []),
    ],
)
def test_names_in_sql(sql: str, found: list[str]) -> None:
    assert named_in(sql, ["a", "b", "c"]) == found


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, list[tuple[str, str]]]:
    keys = [f"box {number}" for number in range(draw(st.integers(1, 9)))]
    links = [(a, b) for number, a in enumerate(keys) for b in keys[number + 1 :] if draw(st.booleans())]
    ends = [key for key in keys if not any(a == key for a, _ in links)]
    last = draw(st.lists(st.sampled_from(ends), unique=True))
    sizes = {key: Size(draw(st.integers(50, 200)), draw(st.integers(20, 90))) for key in keys}
    return place(sizes, links, last, gap_x=40, gap_y=10), links


@given(layouts())
def test_boxes_do_not_touch_and_arrows_go_right(found: tuple[Layout, list[tuple[str, str]]]) -> None:
    layout, links = found
    places = list(layout.boxes.values())
    for number, one in enumerate(places):
        assert one.x >= 0
        assert one.y >= 0
        assert one.x + one.width <= layout.width
        assert one.y + one.height <= layout.height
        for other in places[number + 1 :]:
            apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
            apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
            assert apart_x or apart_y
    for number, route in layout.routes:
        start, end = links[number]
        assert route[0] == layout.boxes[start]
        assert route[-1] == layout.boxes[end]
        for before, after in pairwise(route):
            assert before.x + before.width < after.x
        for point in route[1:-1]:
            assert not any(
                one.y < point.y < one.y + one.height and one.x < point.x + point.width and point.x < one.x + one.width
                for one in places
            )


def test_the_command_writes_next_to_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "graph", str(file)]) == 0
    assert capsys.readouterr().out == f"wrote {file.with_suffix('.svg')}\n"
    assert file.with_suffix(".svg").read_text() == draw(load(file))
    assert main(["pipeline", "graph", str(file), "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    file.write_text(PIPELINE.replace("dedupe", "dedup"))
    assert main(["pipeline", "graph", str(file)]) == 2
    assert "Did you mean dedupe?" in capsys.readouterr().err
