"""Fetch sessions: created, continued, changed, with a wrong epoch, and evicted."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

import pytest

from ottla import errors
from ottla.broker.fetch_sessions import EVICTION_AFTER, FetchSessions, Key, grouped
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey

NOW = 1_700_000_000_000
VERSION = 12


def request(partitions: dict[int, int], session: tuple[int, int] = (0, 0), forget: list[int] | None = None) -> Any:
    """Build a decoded fetch request for partitions of topic t."""
    message = {
        "max_wait": 0, "min_bytes": 0, "session_id": session[0], "session_epoch": session[1],
        "topics": [{
            "topic": "t",
            "partitions": [
                {"partition": p, "fetch_offset": offset, "partition_max_bytes": 100} for p, offset in partitions.items()
            ],
        }],
        "forgotten_topics_data": [{"topic": "t", "partitions": forget or []}],
    }  # fmt: skip
    frame = codec.encode_request(ApiKey.FETCH, VERSION, 1, None, message)[4:]
    start = codec.decode_request_header(frame).body
    return codec.decode_request_body(ApiKey.FETCH, VERSION, frame, start)


def sessions(slots: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, lambda: next(ids))


def offsets(plan: Any) -> dict[int, int]:
    return {wanted.key.partition: wanted.fetch_offset for wanted in plan.wanted}


def test_a_session_by_name_cannot_go_on_by_id() -> None:
    cache = sessions()
    cache.plan(request({0: 5}), by_id=False, now=NOW)
    with pytest.raises(errors.FetchSessionTopicIdError):
        cache.plan(request({}, (1, 1)), by_id=True, now=NOW)


def test_a_full_cache_gives_sessionless_answers_until_an_old_session_can_go() -> None:
    cache = sessions(slots=1)
    cache.plan(request({0: 5}), by_id=False, now=NOW)
    assert cache.plan(request({0: 5}), by_id=False, now=NOW + EVICTION_AFTER - 1).session_id == 0
    assert cache.plan(request({0: 5}), by_id=False, now=NOW + EVICTION_AFTER).session_id == 2
    with pytest.raises(errors.FetchSessionIdNotFound):
        cache.plan(request({}, (1, 1)), by_id=False, now=NOW)


def test_only_news_is_told_again() -> None:
    wanted = sessions().plan(request({0: 5}), by_id=False, now=NOW).wanted[0]
    answer = {"error_code": 0, "high_watermark": 5, "log_start_offset": 0}
    assert wanted.is_news(answer, 0)
    assert not wanted.is_news(answer, 0)
    assert wanted.is_news(answer, 10)
    assert wanted.is_news({**answer, "high_watermark": 6}, 0)
    assert wanted.is_news({**answer, "high_watermark": 6, "log_start_offset": 1}, 0)
    failed = {"error_code": 3, "high_watermark": -1, "log_start_offset": -1}
    assert wanted.is_news(failed, 0)
    assert wanted.is_news(failed, 0)


def test_a_partition_that_was_served_is_read_last_next_time() -> None:
    cache = sessions()
    plan = cache.plan(request({0: 5, 1: 6, 2: 7}), by_id=False, now=NOW)
    assert plan.session is not None
    plan.session.move_to_end([Key("t", None, 0)])
    assert list(offsets(cache.plan(request({}, (1, 1)), by_id=False, now=NOW))) == [1, 2, 0]


def test_neighbours_of_one_topic_share_an_entry() -> None:
    one, two = UUID(int=1), UUID(int=2)
    answers = [(Key(None, one, 0), {"a": 1}), (Key(None, one, 1), {"a": 2}), (Key(None, two, 0), {"a": 3})]
    assert grouped(answers) == [
        {"topic": "", "topic_id": one, "partitions": [{"a": 1}, {"a": 2}]},
        {"topic": "", "topic_id": two, "partitions": [{"a": 3}]},
    ]
