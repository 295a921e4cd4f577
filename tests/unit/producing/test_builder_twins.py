"""What a producer does for every record: both twins do the same, and the result is a record batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.producing.batch import Batch, pack
from ottla.records import Compression, Record, _builder_pure, decode_batch, read_header
from ottla.records.builder import BatchBuilder, FastSend, Lanes, RecordFuture
from ottla.records.header import BATCH_OVERHEAD, check_batch
from ottla.types import TopicPartition

try:
    from ottla.records import _builder

    TWINS: list[Any] = [_builder_pure, _builder]
except ImportError:
    TWINS = [_builder_pure]

TIMES = st.one_of(st.integers(0, 2**41), st.sampled_from([0, 1, 2**62, 2**63 - 1]))
PARTS = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.one_of(st.none(), st.binary(max_size=20))), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, PARTS, PARTS, HEADERS.map(tuple)), max_size=12)


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


@given(RECORDS, st.integers(BATCH_OVERHEAD, 900))
def test_the_same_bytes(records: list[Any], capacity: int) -> None:
    made = []
    for twin in TWINS:
        builder = twin.BatchBuilder(bytearray(capacity))
        indexes = [builder.append(*record) for record in records]
        content = bytes(builder.buffer[BATCH_OVERHEAD : builder.size])
        made.append((indexes, content, builder.count, builder.base_timestamp, builder.max_timestamp))
    assert all(other == made[0] for other in made)


@given(RECORDS.filter(bool), st.sampled_from(list(Compression)))
def test_a_sealed_batch_holds_the_records(records: list[Any], codec: Compression) -> None:
    batch = Batch(TopicPartition("t", 0), bytearray(20_000), memory=20_000, now=0)
    for record in records:
        assert batch.append(*record) >= 0
    batch.number(7, 2, 40)
    sealed = bytes(batch.sealed(codec, None))
    header = read_header(sealed)
    check_batch(sealed, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.compression is codec
    assert header.max_timestamp == max(record[0] for record in records)
    expected = [Record(number, *record) for number, record in enumerate(records)]
    assert decode_batch(sealed) == expected
    assert batch.records() == expected


def test_new_numbers_give_a_new_crc_over_the_same_records() -> None:
    batch = Batch(TopicPartition("t", 0), bytearray(200), memory=200, now=0)
    batch.append(5, b"k", b"v", ())
    first = bytes(batch.sealed(Compression.GZIP, None))
    assert bytes(batch.sealed(Compression.GZIP, None)) == first
    batch.number(1, 0, 0)
    second = bytes(batch.sealed(Compression.GZIP, None))
    check_batch(second, 0, read_header(second))
    assert decode_batch(second) == decode_batch(first)
    assert read_header(second).producer_id == 1


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name.lower())
def test_batches_are_packed_together_as_each_by_itself(codec: Compression) -> None:
    together, alone = ([filled_batch(number) for number in range(3)] for _ in range(2))
    pack(together, codec, None)
    assert all(batch.closed for batch in together if codec is not Compression.NONE)
    assert [bytes(batch.sealed(codec, None)) for batch in together] == [
        bytes(batch.sealed(codec, None)) for batch in alone
    ]


def filled_batch(number: int) -> Batch:
    batch = Batch(TopicPartition("t", number), bytearray(20_000), memory=20_000, now=0)
    while batch.append(5, b"key %d" % number, b"value %d" % batch.count) >= 0:
        pass
    return batch


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ((2**63, None, None), "timestamp"),
        ((0, "key", None), "key must be bytes"),
        ((0, None, 5), "value must be bytes"),
        ((0, None, None, [(b"name", b"")]), "header key must be str"),
        ((0, None, None, [("name", "text")]), "header value must be bytes"),
    ],
)
def test_bad_records_are_rejected_and_leave_nothing_behind(twin: Any, record: tuple[Any, ...], problem: str) -> None:
    builder = twin.BatchBuilder(bytearray(500))
    with pytest.raises((TypeError, ValueError), match=problem):
        builder.append(*record)
    assert (builder.count, builder.size) == (0, BATCH_OVERHEAD)


def test_a_closed_batch_takes_nothing(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(500))
    assert builder.append(1, None, b"v") == 0
    builder.close()
    assert builder.append(1, None, b"v") == -1
    assert builder.count == 1


def test_encoded_records_fill_a_batch(twin: Any) -> None:
    source = twin.BatchBuilder(bytearray(500))
    source.append(10, b"k", b"v")
    source.append(12, b"k", b"w")
    payload = bytes(source.buffer[BATCH_OVERHEAD : source.size])
    builder = twin.BatchBuilder(bytearray(BATCH_OVERHEAD + len(payload)))
    builder.fill(memoryview(payload), 2, 10, 12)
    assert (builder.count, builder.size, builder.closed) == (2, source.size, True)
    assert (builder.base_timestamp, builder.max_timestamp) == (10, 12)
    with pytest.raises(ValueError, match="only a new batch"):
        builder.fill(payload, 2, 10, 12)
    with pytest.raises(ValueError, match="do not fill"):
        twin.BatchBuilder(bytearray(BATCH_OVERHEAD)).fill(payload, 2, 10, 12)


def test_encoded_records_are_taken_over_where_they_are(twin: Any) -> None:
    source = twin.BatchBuilder(bytearray(500))
    source.append(10, b"k", b"v")
    source.append(12, b"k", b"w")
    framed = bytearray(source.buffer[: source.size])
    builder = twin.BatchBuilder(framed)
    builder.fill(None, 2, 10, 12)
    assert builder.buffer is framed
    assert (builder.count, builder.size, builder.closed) == (2, source.size, True)
    assert (builder.base_timestamp, builder.max_timestamp) == (10, 12)
    with pytest.raises(ValueError, match="only a new batch"):
        builder.fill(None, 2, 10, 12)
    with pytest.raises(ValueError, match="do not fill"):
        twin.BatchBuilder(bytearray(BATCH_OVERHEAD)).fill(None, 0, 10, 12)


def test_outcomes_are_given_once(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(500))
    builder.append(1, None, b"v")
    future = twin.RecordFuture(builder, 0, 1, -1, 1)
    assert not future.done()
    assert builder.watch(future, print)
    assert builder.call_back(future, repr)
    callbacks, watchers = builder.finish(41, -1, None)
    assert (callbacks, watchers) == ([(future, repr)], [(future, print)])
    assert builder.finish(7, -1, ValueError()) == ([], [])
    assert (builder.base_offset, builder.error, future.done(), future.succeeded()) == (41, None, True, True)
    assert not builder.watch(future, print)
    assert (future.cancel(), future.cancelled(), future.exception()) == (False, False, None)


def test_a_removed_watcher_is_not_called(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(500))
    builder.append(1, None, b"v")
    future, other = (twin.RecordFuture(builder, 0, 1, -1, 1) for _ in range(2))
    for each in (future, future, other):
        each.add_done_callback(print)
    future.add_done_callback(repr)
    assert (future.is_done, future._state) == (False, "PENDING")
    assert (future.remove_done_callback(print), future.remove_done_callback(print)) == (2, 0)
    assert builder.finish(0, -1, None)[1] == [(other, print), (future, repr)]
    assert (future.is_done, future._state) == (True, "FINISHED")


def test_a_removed_watcher_of_a_split_batch_is_not_called(twin: Any) -> None:
    whole, part = (twin.BatchBuilder(bytearray(500)) for _ in range(2))
    for builder in (whole, part):
        builder.append(1, None, b"v")
    future = twin.RecordFuture(whole, 0, 1, -1, 1)
    future.add_done_callback(print)
    whole.split([part])
    assert future.remove_done_callback(print) == 1
    assert part.finish(0, -1, None) == ([], [])


def test_a_failed_future_raises_what_went_wrong(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(500))
    builder.append(1, None, b"v")
    future = twin.RecordFuture(builder, 0, 1, -1, 1)
    seen: list[object] = []
    future.add_errback(seen.append).add_callback(seen.append)
    error = ValueError("no")
    for _, watcher in builder.finish(-1, -1, error)[1]:
        watcher(future)
    assert seen == [error]
    assert future.failed()
    with pytest.raises(ValueError, match="no"):
        future.result()
    future.add_done_callback(seen.append)
    assert seen == [error, future]


def test_futures_follow_their_records_through_splits(twin: Any) -> None:
    class Told(twin.BatchBuilder):  # type: ignore[misc]
        def metadata(self, index: int, future: Any) -> int:
            return int(self.base_offset + index)

    def filled(count: int) -> Any:
        builder = Told(bytearray(500))
        for _ in range(count):
            builder.append(1, None, b"v")
        return builder

    whole = filled(5)
    futures = [twin.RecordFuture(whole, index, 1, -1, 1) for index in range(5)]
    whole.watch(futures[1], print)
    whole.call_back(futures[4], print)
    first, second = filled(2), filled(3)
    whole.split([first, second])
    left, right = filled(1), filled(2)
    second.split([left, right])
    assert whole.finish(0, -1, None) == ([], [])
    assert first.finish(100, -1, None)[1] == [(futures[1], print)]
    assert [future.done() for future in futures] == [True, True, False, False, False]
    assert futures[3].batch.watch(futures[3], repr)
    left.finish(200, -1, None)
    assert right.finish(300, -1, None) == ([(futures[4], print)], [(futures[3], repr)])
    assert [future.result() for future in futures] == [100, 101, 200, 300, 301]
    with pytest.raises(ValueError, match="3 records were split into 2"):
        filled(3).split([filled(2)])


# The fast path.


@pytest.mark.skipif(FastSend is _builder_pure.FastSend, reason="the pure twin has no fast path")
class TestFastSend:
    def prepared(self, partitions: int = 3) -> tuple[FastSend, Lanes]:
        sender = FastSend()
        lanes = Lanes("t", partitions)
        for number in range(partitions):
            lanes.open(number, BatchBuilder(bytearray(300)))
        lanes.sticky, lanes.sticky_limit = 1, 1_000
        sender._lanes["t"] = lanes
        sender._is_fast = True
        return sender, lanes

    def count(self, lanes: Lanes) -> list[int]:
        return [builder.count for number in range(lanes.partitions) if (builder := lanes.opened(number)) is not None]

    def test_partitions(self) -> None:
        sender, lanes = self.prepared()
        assert isinstance(sender._attempt_send("t", b"v"), RecordFuture)
        assert self.count(lanes) == [0, 1, 0]
        assert lanes.sticky_bytes == 8
        sender._attempt_send("t", b"v", partition=2)
        assert self.count(lanes) == [0, 1, 1]
        sender._attempt_send("t", b"v", key=b"21")  # (-973932308 & 0x7FFFFFFF) % 3
        assert self.count(lanes)[(-973932308 & 0x7FFFFFFF) % 3] >= 1
        sender._hash_keys = False
        sender._attempt_send("t", b"v", key=b"21")
        assert self.count(lanes)[1] >= 2

    def test_a_record_is_complete(self) -> None:
        sender, lanes = self.prepared()
        future = sender._attempt_send("t", None, b"k", 0, 123, [("h", b"x"), ("n", None)], print)
        assert future is not None
        assert (future.index, future.timestamp, future.key_size, future.value_size) == (0, 123, 1, -1)
        batch = Batch(TopicPartition("t", 0), bytearray(300), memory=0, now=0)
        batch.append(123, b"k", None, (("h", b"x"), ("n", None)))
        builder = lanes.opened(0)
        assert builder is not None
        assert builder.buffer is not None
        assert builder.buffer[61 : builder.size] == (batch.buffer or b"")[61 : batch.size]
        assert builder.finish(0, -1, None)[0] == [(future, print)]

    @pytest.mark.parametrize(
        "arguments",
        [
            ("other", b"v"),
            ("t", "text"),
            ("t", b"v", "key"),
            ("t", b"v", None, 3),
            ("t", b"v", None, -1),
            ("t", b"v", None, 2**70),
            ("t", b"v", None, True),
            ("t", b"v", None, None, -5),
            ("t", b"v", None, None, 2**70),
            ("t", b"v", None, None, None, {"a": b"b"}),
            ("t", b"v", None, None, None, [("a", "b")]),
            ("t", b"v", None, None, None, [("a", b"b", b"c")]),
            ("t", b"v" * 400),
        ],
    )
    def test_whatever_is_unusual_is_left_to_the_slow_path(self, arguments: tuple[Any, ...]) -> None:
        sender, lanes = self.prepared()
        assert sender._attempt_send(*arguments) is None
        assert self.count(lanes) == [0, 0, 0]

    def test_without_an_open_batch_or_when_told_so_nothing_goes_fast(self) -> None:
        sender, lanes = self.prepared()
        lanes.open(1, None)
        assert sender._attempt_send("t", b"v") is None
        lanes.sticky = -1
        assert sender._attempt_send("t", b"v") is None
        lanes.sticky = 0
        assert sender._attempt_send("t", b"v") is not None
        sender._is_fast = False
        assert sender._attempt_send("t", b"v") is None

    def test_twice_the_limit_ends_the_stickiness(self) -> None:
        sender, lanes = self.prepared()
        lanes.sticky_limit = 10
        assert sender._attempt_send("t", b"v" * 20) is not None
        assert lanes.sticky == -1
