"""Checks of joins and sessions, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines import DeclarationError, load

TEXT = """\
name = "shop"
checkpoint = "state"
bootstrap_servers = "localhost:9092"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT, total DOUBLE, at TIMESTAMP"
event_time = "at"
watermark = "10 minutes"

[[source]]
name = "payments"
topics = ["payments"]
schema = "id BIGINT, amount DOUBLE, paid TIMESTAMP"
event_time = "paid"
watermark = "1 hour"

[[source]]
name = "clicks"
topics = ["clicks"]
schema = "id BIGINT"

[[table]]
name = "people"
format = "csv"
path = "people.csv"

[[step]]
name = "s"
input = "orders"
{step}
[[sink]]
name = "out"
format = "{sink}"
{mode}
"""


def told(tmp_path: Path, step: str, sink: str = "console", mode: str = "", more: str = "") -> list[tuple[str, str]]:
    """The problems, each with the text of its line."""
    (tmp_path / "people.csv").write_text("")
    text = TEXT.format(step=step, sink=sink, mode=mode) + more
    (tmp_path / "shop.toml").write_text(text)
    try:
        load(tmp_path / "shop.toml")
    except DeclarationError as error:
        return [(text.splitlines()[(one.line or 1) - 1], one.message) for one in error.problems]
    return []


@pytest.mark.parametrize(
    ("step", "at", "message"),
    [
        ('join = "payments"\non = ["id"]\nwithin = "1 hour"', None, ""),
        ('join = "payments"\non = ["id"]\nwithin = {before = "5 m", after = "1 h"}\nhow = "full"', None, ""),
        ('join = "payments"\non = ["id"]\nwithin = {after = "1 h"}\nhow = "semi"\nprefix = "p_"', None, ""),
        ('join = "payments"\non = ["id"]', "join", "payments is a stream: set the maximum time"),
        ('join = "payments"\non = []\nwithin = "1 h"', "on =", "on is empty"),
        ('join = "payments"\non = ["id"]\nwithin = "soon"', "within", "within must be a duration"),
        ('join = "payments"\non = ["id"]\nwithin = {aftr = "1 h"}', "within", "not aftr. Did you mean after?"),
        ('join = "payments"\non = ["id"]\nwithin = {}', "within", "within has the keys before and after"),
        ('join = "payments"\non = ["id"]\nwithin = {after = 5}', "within", "within must be a duration"),
        (
            'join = "payments"\non = ["id"]\nwithin = "1 h"\nhow = "anti"',
            "how",
            "how = anti is not possible with a stre",
        ),
        (
            'join = "payments"\non = ["id"]\nwithin = "1 h"\nhow = "outer"',
            "how",
            "how must be one of inner, left, right",
        ),
        ('join = "clicks"\non = ["id"]\nwithin = "1 h"', "join", "clicks has no watermark, so its rows would be kept"),
        ('join = "paymnts"\non = ["id"]\nwithin = "1 h"', "join", "paymnts does not exist: name a table, a source"),
        ('join = "paymnts"\non = ["id"]\nwithin = "1 h"', "join", "Did you mean payments?"),
        ('join = "s"\non = ["id"]\nwithin = "1 h"', "join", "s is declared later"),
        ('join = "people"\non = ["id"]', None, ""),
        (
            'join = "people"\non = ["id"]\nwithin = "1 h"',
            "within",
            "within is for joins of streams, but people is a tab",
        ),
        ('join = "people"\non = ["id"]\nhow = "right"', "how", "how = right is not possible with a table: use one of"),
        ('session = "5 minutes"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}', None, ""),
        ('session = "5 minutes"\ngroup_by = []\naggregate = {n = "count(*)"}', "group_by", "group_by is empty"),
        ('session = "5 minutes"\ngroup_by = ["id"]\naggregate = {}', "aggregate", "aggregate is empty"),
        ('session = "5 minutes"\naggregate = {n = "count(*)"}', "[[step]]", "group_by is missing"),
        (
            'session = "a while"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}',
            "session",
            "session must be a duration",
        ),
        (
            'session = "5 minutes"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}\nslide = "1 m"',
            "slide",
            "It is a key of [[step]] with window.",
        ),
        (
            'session = "5 minutes"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}\nwatermark = "1 hour"',
            'watermark = "1 hour"',
            "watermark 1 hour differs from 10 minutes of orders",
        ),
    ],
)
def test_joins_and_sessions(tmp_path: Path, step: str, at: str | None, message: str) -> None:
    problems = told(tmp_path, step)
    if at is None:
        assert problems == []
    else:
        assert [one for one in problems if one[0].startswith(at) and message in one[1]], problems


def test_modes_of_joins_and_sessions(tmp_path: Path) -> None:
    join = 'join = "payments"\non = ["id"]\nwithin = "1 h"'
    session = 'session = "5 minutes"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}'
    assert told(tmp_path, join, mode='mode = "update"') == []
    ((line, message),) = told(tmp_path, f'{join}\nhow = "left"', mode='mode = "update"')
    assert (line, message) == (
        'mode = "update"',
        "a left join of streams (s) does not support mode update: remove mode",
    )
    ((line, message),) = told(tmp_path, session, mode='mode = "update"')
    assert (line, message.split(":")[0]) == ('mode = "update"', "sessions can merge, so s has no mode update")
    # Aggregated rows have no event time to join by.
    more = '[[step]]\nname = "t"\njoin = "payments"\non = ["id"]\nwithin = "1 h"\n'
    ((_, message),) = told(tmp_path, session, more=more)
    assert message == "s has no event time after s: join the streams first, then aggregate"


def test_a_session_needs_a_watermark_to_end(tmp_path: Path) -> None:
    step = 'session = "5 minutes"\ngroup_by = ["id"]\naggregate = {n = "count(*)"}'
    text = TEXT.format(step=step, sink="console", mode="").replace('input = "orders"', 'input = "clicks"')
    (tmp_path / "people.csv").write_text("")
    (tmp_path / "shop.toml").write_text(text)
    with pytest.raises(DeclarationError, match="sessions without a watermark never end, so sink out would never write"):
        load(tmp_path / "shop.toml")


def test_a_refresh_is_a_duration(tmp_path: Path) -> None:
    text = TEXT.format(step='join = "people"\non = ["id"]', sink="console", mode="")
    (tmp_path / "people.csv").write_text("")
    file = tmp_path / "shop.toml"
    file.write_text(text.replace('path = "people.csv"', 'path = "people.csv"\nrefresh = "10 minutes"'))
    load(file)
    file.write_text(text.replace('path = "people.csv"', 'path = "people.csv"\nrefresh = "often"'))
    with pytest.raises(DeclarationError, match="refresh must be a duration such as"):
        load(file)
    file.write_text(text.replace('path = "people.csv"', 'path = "*.csv"\nrefresh = "1 hour"'))
    with pytest.raises(DeclarationError, match="refresh cannot find new files of a pattern"):
        load(file)
