"""The pages of groups and of the lab over HTTP, with a real broker."""

from __future__ import annotations

import html
import time
from uuid import uuid4

import httpx
import pytest

from console.conftest import Start
from console.forms import confirm
from ottla import Admin, Broker, Consumer, Producer, TopicPartition


@pytest.fixture(scope="module")
def group(broker: Broker) -> str:
    """A group that has read 4 of 10 records, and has no members now."""
    name, topic = f"billing/{uuid4().hex[:6]}", f"orders-{uuid4().hex[:6]}"
    config = broker.client_config()
    with Producer(config) as producer:
        for _ in range(10):
            producer.send(topic, b"x", partition=0)
        producer.flush()
    with Consumer({**config, "group.id": name, "auto.offset.reset": "earliest", "max.poll.records": 4}) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()
        name_of_member = consumer.group_metadata().member_id
        assert name_of_member
    return name


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return html.unescape(response.text)


def url(group: str, rest: str = "") -> str:
    return "/groups/" + group.replace("/", "~2F") + rest


def test_the_list_and_the_group(console: httpx.Client, group: str) -> None:
    assert group in text(console.get("/groups"))
    assert "No group matches" in text(console.get("/groups", params={"q": "nothing-like-this"}))
    page = text(console.get(url(group)))
    assert "Rebalanced 2 times in the last hour" in page
    assert "Unread records" in page
    assert ">6<" in page.replace(" ", ""), "6 of 10 records are unread"
    assert 'aria-label="#0 member joined' in page
    assert f"ottla groups explain {group}" in page
    assert "No members now" in page


def test_a_rebalance_has_an_address(console: httpx.Client, group: str) -> None:
    page = text(console.get(url(group, "/rebalances/0")))
    assert "member joined" in page
    assert "nobody" in page
    missing = console.get(url(group, "/rebalances/77"))
    assert missing.status_code == 404
    assert "is not recorded" in missing.text


def test_an_unknown_group(console: httpx.Client) -> None:
    missing = console.get("/groups/no-such-group")
    assert missing.status_code == 404
    assert "does not exist" in missing.text


def test_a_plan_needs_members(console: httpx.Client, group: str) -> None:
    assert "The group has no members now" in text(console.get(url(group, "/plan")))


def test_offsets_are_reset_after_a_dry_run(console: httpx.Client, broker: Broker, group: str) -> None:
    page = text(console.get(url(group, "/reset"), params={"to": "shift", "value": "-3"}))
    assert "The group reads 3 records again, and skips 0 records." in page
    assert "--all-topics --shift-by=-3 --execute" in page
    wrong = console.get(url(group, "/reset"), params={"to": "offset", "value": "many"})
    assert wrong.status_code == 400
    assert "is not a whole number from 0 on" in html.unescape(wrong.text)
    wrong = console.get(url(group, "/reset"), params={"to": "datetime", "value": "yesterday"})
    assert "is not a time: write epoch milliseconds" in html.unescape(wrong.text)
    done = confirm(console, url(group, "/reset"), to="latest")
    assert done.status_code == 303
    with Admin(broker.client_config()) as admin:
        (offset,) = admin.list_group_offsets(group).values()
    assert offset.offset == 10


def test_read_only_does_nothing(start: Start, group: str) -> None:
    console = start(read_only=True)
    page = console.get(url(group, "/delete"))
    assert "This console is read-only." in page.text
    assert confirm(console, url(group, "/delete")).status_code == 403


def test_a_replay_of_a_group_and_its_limits(console: httpx.Client, group: str) -> None:
    missing = console.get("/lab", params={"group": group, "since": "0.001s"})
    assert missing.status_code == 400
    assert "has no recorded rebalances in this time" in html.unescape(missing.text)
    assert "is not a duration" in html.unescape(console.get("/lab", params={"group": group, "since": "soon"}).text)


def test_the_lab_computes_once(console: httpx.Client) -> None:
    assert "rolling-deploy" in text(console.get("/lab"))
    for wrong in ({"scenario": "scael"}, {"scenario": "scale", "members": "1000"}, {"scenario": "scale", "seed": "x"}):
        assert console.get("/lab", params=wrong).status_code == 400
    params = {"scenario": "failover", "members": "2", "design": "consumer"}
    deadline = time.monotonic() + 30
    while 'http-equiv="refresh"' in (page := text(console.get("/lab", params=params))):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "ottla lab failover --members 2 --seed 1 --design consumer" in page
    assert "★" in page
    again = text(console.get("/lab", params=params))
    assert 'http-equiv="refresh"' not in again


def test_a_group_is_deleted(console: httpx.Client, group: str) -> None:
    done = confirm(console, url(group, "/delete"))
    assert (done.status_code, done.headers["location"]) == (303, "/groups")
    assert console.get(url(group)).status_code == 404


def test_an_action_reaches_the_group_that_it_names(console: httpx.Client, broker: Broker) -> None:
    """`%41` in a name is not the letter A."""
    with Admin(broker.client_config()) as admin:
        admin.create_topics(["percents"])
        for name in ("like-%41", "like-A"):
            admin.alter_group_offsets(name, {TopicPartition("percents", 0): 0})
        done = confirm(console, "/groups/like-%2541/delete")
        assert done.status_code == 303
        left = {one.group_id for one in admin.list_groups()}
    assert "like-A" in left
    assert "like-%41" not in left
    assert console.get("/groups/like-A/plan", params={"add": "9" * 5000}).status_code == 200


def test_odd_addresses_get_an_answer_without_a_traceback(console: httpx.Client) -> None:
    long = "9" * 5000
    for page in ("/topics", "/groups"):
        assert console.get(page, params={"page": long}).status_code == 200
    for path in ("/groups/~", "/topics/%ff", f"/topics/{'x' * 300}"):
        assert console.get(path).status_code == 404
    assert console.get("/groups/", follow_redirects=True).url.path == "/groups"
