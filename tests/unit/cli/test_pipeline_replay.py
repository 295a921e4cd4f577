"""``ottla pipeline replay``: each selected dead letter is sent back once; others keep waiting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla

import ottla as public
from ottla.clients.admin.blocking import Admin
from ottla.consuming.values import ConsumerRecord
from ottla.spark.pipelines.replay import Choice, Replay, ReplayError, Waiting


@dataclass
class Letters:
    """A topic, and dead letters of it that `ottla.DeadLetters` wrote."""

    servers: str
    topic: str

    @property
    def dead(self) -> str:
        return f"{self.topic}.dead"

    def give_up(self, *values: str) -> None:
        """Send records, and let a handler fail on each: its error is the value."""
        with public.Producer(bootstrap_servers=self.servers) as producer:
            for value in values:
                headers = [("trace", value.encode())]
                producer.send(self.topic, value.encode(), key=value[:1].encode(), headers=headers).result(20)
            self.handle(len(values), producer)

    def handle(self, count: int, producer: public.Producer) -> None:
        config = {"bootstrap.servers": self.servers, "group.id": f"{self.topic}-handlers"}
        with public.Consumer(config, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([self.topic])
            helper = public.DeadLetters(consumer, producer, topic="{topic}.dead", attempts=1)
            dead = 0
            while dead < count:
                dead += helper.process(consumer.poll(1.0), _fail).dead

    def records(self, topic: str, count: int) -> list[ConsumerRecord]:
        """The committed records of a topic; waits for `count` of them."""
        config = {"bootstrap.servers": self.servers, "isolation.level": "read_committed"}
        with public.Consumer(config) as consumer:
            keys = [public.TopicPartition(topic, one.partition) for one in consumer.partitions_for(topic)]
            consumer.assign(keys)
            consumer.seek_to_beginning(*keys)
            ends, found = consumer.end_offsets(keys), list[ConsumerRecord]()
            while len(found) < count or any(consumer.position(key) < ends[key] for key in keys):
                found += consumer.poll(1.0)
        return found


def _fail(record: ConsumerRecord) -> None:
    kind = KeyError if record.value.startswith(b"k") else ValueError
    raise kind(record.value.decode())


@pytest.fixture
def letters(bootstrap: str) -> Letters:
    found = Letters(bootstrap, f"orders-{uuid4().hex[:8]}")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([public.NewTopic(found.topic, 1), public.NewTopic(found.dead, 1)])
    return found


def test_all_go_back_once(ottla: Ottla, letters: Letters) -> None:
    letters.give_up("v1", "v2", "k3")
    shown = ottla("pipeline", "replay", "--topic", letters.dead, "--dry-run")
    assert shown.code == 0, shown.err
    assert shown.lines[0].split() == ["DEAD", "LETTER", "FROM", "OFFSET", "REPLAYS", "ERROR"]
    assert "ValueError: v1" in shown.lines[1]
    assert shown.lines[-1] == "3 dead letters would be sent back"
    assert len(letters.records(letters.topic, 3)) == 3
    assert ottla("pipeline", "replay", "--topic", letters.dead).text == "3 dead letters sent back\n"
    again = [record for record in letters.records(letters.topic, 6) if dict(record.headers).get("ottla-replays")]
    assert sorted((record.key, record.value) for record in again) == [(b"k", b"k3"), (b"v", b"v1"), (b"v", b"v2")]
    headers = dict(min(again, key=lambda record: record.value).headers)
    assert headers == {"trace": b"k3", "ottla-replays": b"1", "ottla-replayed-from": f"{letters.dead}-0:2".encode()}
    assert ottla("pipeline", "replay", "--topic", letters.dead).text == "0 dead letters sent back\n"


def test_what_is_not_chosen_goes_on_to_wait(ottla: Ottla, letters: Letters) -> None:
    letters.give_up("v1", "k2", "v3", "k4", "v5")
    chosen = ottla("pipeline", "replay", "--topic", letters.dead, "--error", "keyerror", "--json")
    assert json.loads(chosen.out) == {"sent": 2, "waiting": {"other error": 3}}
    with Replay(
        [letters.dead], group=f"{letters.dead}.replay", config={"bootstrap.servers": letters.servers}
    ) as replay:
        # One letter after the last chosen one, and two that were appended again.
        assert replay.waiting(at_most=100) == (3, True)
        assert replay.waiting(at_most=1)[1] is False
    limited = ottla("pipeline", "replay", "--topic", letters.dead, "--limit", "2")
    assert limited.lines == ["2 dead letters sent back", "1 dead letter still waiting: over the limit"]
    rest = ottla("pipeline", "replay", "--topic", letters.dead, "--dry-run", "--json")
    (only,) = [json.loads(line) for line in rest.lines]
    assert (only["chosen"], only["from"]["topic"], only["error_class"]) == (True, letters.topic, "builtins.ValueError")
    assert ottla("pipeline", "replay", "--topic", letters.dead).text == "1 dead letter sent back\n"
    values = sorted(record.value for record in letters.records(letters.topic, 10))
    assert values == sorted([b"v1", b"k2", b"v3", b"k4", b"v5"] * 2)


def test_what_fails_again_is_counted_and_does_not_go_round(ottla: Ottla, letters: Letters) -> None:
    letters.give_up("v1")
    for round_ in (1, 2):
        assert ottla("pipeline", "replay", "--topic", letters.dead, "--max-replays", "2").lines[0].startswith("1 ")
        with public.Producer(bootstrap_servers=letters.servers) as producer:
            letters.handle(1, producer)
        assert dict(letters.records(letters.dead, round_ + 1)[-1].headers)["ottla-replays"] == str(round_).encode()
    refused = ottla("pipeline", "replay", "--topic", letters.dead, "--max-replays", "2")
    assert refused.lines == ["0 dead letters sent back", "1 dead letter still waiting: already replayed 2 times"]
    once = ottla("pipeline", "replay", "--topic", letters.dead, "--max-replays", "1")
    assert once.lines[1] == "1 dead letter still waiting: already replayed 1 time"


def test_times_and_topics(ottla: Ottla, letters: Letters) -> None:
    letters.give_up("v1", "v2")
    replay = ("pipeline", "replay", "--topic", letters.dead)
    assert ottla(*replay, "--since", "2999-01-01T00:00:00Z").lines[1] == "2 dead letters still waiting: other time"
    assert ottla(*replay, "--until", "1h").lines[1] == "2 dead letters still waiting: other time"
    assert ottla(*replay, "--from-topic", "users").lines[1] == "2 dead letters still waiting: other topic"
    other = f"{letters.topic}-repaired"
    missing = ottla(*replay, "--to", other)
    assert missing.code == 1
    assert f"cannot send 2 dead letters to topic {other}" in missing.err
    assert ottla("topics", "create", other, "--partitions", "1").code == 0
    assert ottla(*replay, "--to", other, "--since", "1h", "--keep-timestamps").lines == [
        f"2 dead letters sent back to {other}"
    ]
    first = {record.value: record.timestamp for record in letters.records(letters.topic, 2)}
    assert {record.value: record.timestamp for record in letters.records(other, 2)} == first


def test_a_later_replay_fences_an_earlier_one(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.give_up("v1", "v2", "v3", "v4")
    group, config = f"{letters.dead}.replay", {"bootstrap.servers": letters.servers}
    monkeypatch.setattr("ottla.spark.pipelines.replay.TOGETHER", 2)
    with Replay([letters.dead], group=group, config=config) as slow:
        plan = slow.plan()

        def overtake(_: object) -> None:
            with Replay([letters.dead], group=group, config=config) as fast:
                assert fast.run(fast.plan()).sent == 2

        with pytest.raises(ReplayError, match=r"another replay of group .* has taken over: 2 letters were sent"):
            slow.run(plan, each=overtake)
    values = sorted(record.value for record in letters.records(letters.topic, 8))
    assert values == sorted([b"v1", b"v2", b"v3", b"v4"] * 2)


def test_wrong_usage(ottla: Ottla, letters: Letters) -> None:
    nothing = ottla("pipeline", "replay")
    assert (nothing.code, "name the pipeline's FILE, or the dead letter topic with --topic" in nothing.err) == (2, True)
    unknown = ottla("pipeline", "replay", "--topic", "nope.dead")
    assert (unknown.code, "topic nope.dead does not exist" in unknown.err) == (1, True)
    late = ottla("pipeline", "replay", "--topic", letters.dead, "--since", "yesterday")
    assert (late.code, "is not a time" in late.err) == (2, True)
    with public.Producer(bootstrap_servers=letters.servers) as producer:
        producer.send(letters.dead, b"not a dead letter").result(20)
    left = ottla("pipeline", "replay", "--topic", letters.dead)
    assert left.lines == ["0 dead letters sent back", "1 dead letter still waiting: not a dead letter"]


def test_letters_of_a_dead_letter_topic_itself_are_refused(letters: Letters) -> None:
    letters.give_up("v1")
    (record,) = letters.records(letters.dead, 1)
    one = Waiting.of(record)
    assert one is not None
    assert Choice().against(one) is None
    looped = Waiting(public.TopicPartition(letters.topic, 0), one.offset, one.timestamp, one.letter, one.replays)
    assert Choice().against(looped) == "comes from a dead letter topic"


def test_a_letter_without_its_value_is_never_sent_back(letters: Letters) -> None:
    letters.give_up("v1")
    (record,) = letters.records(letters.dead, 1)
    headers = [*record.headers, ("dead-letter-omitted", b"value"), ("dead-letter-size", b"2000000")]
    one = Waiting.of(ConsumerRecord(record.topic, 0, record.offset, record.timestamp, 0, record.key, None, headers))
    assert Choice().against(one) == "has no value, because it was too large for a dead letter"
