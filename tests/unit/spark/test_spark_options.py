"""The options of the data source: parsed values and error messages."""

from __future__ import annotations

import pytest

from ottla.errors import ConfigError
from ottla.spark.options import Bound, OptionError, ReadOptions, Topics, WriteOptions
from ottla.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def read(streaming: bool = False, /, **options: str) -> ReadOptions:
    given = {name.replace("_", "."): value for name, value in options.items()}
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "orders"
    return ReadOptions.of({**SERVERS, **given}, streaming=streaming)


def test_defaults_are_those_of_sparks_source() -> None:
    batch, stream = read(), read(True)
    assert (batch.start, batch.end) == (Bound(word="earliest"), Bound(word="latest"))
    assert stream.start == Bound(word="latest")
    assert batch.topics == Topics(names=("orders",))
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert (stream.max_offsets, stream.min_offsets, stream.max_delay_ms) == (None, None, 900_000)
    assert batch.isolation_level == "read_uncommitted"


def test_what_to_read() -> None:
    assert read(subscribe=" a, b,a ").topics.names == ("a", "b")
    assert read(subscribePattern="a.*").topics.pattern == "a.*"
    assert read(assign='{"a": [1, 0]}').topics.partitions == (TopicPartition("a", 0), TopicPartition("a", 1))


def test_where_to_begin_and_to_end() -> None:
    a0, a1 = TopicPartition("a", 0), TopicPartition("a", 1)
    assert read(startingOffsets='{"a": {"0": 5, "1": -2}}').start.offsets == {a0: 5, a1: -2}
    assert read(endingOffsets='{"a": {"0": 5, "1": -1}}').end.offsets == {a0: 5, a1: -1}
    times = read(startingTimestamp="7", startingOffsetsByTimestamp='{"a": {"0": 1}}', startingOffsets="latest")
    assert times.start == Bound(timestamp=7)
    assert read(startingOffsetsByTimestamp='{"a": {"0": 1}}', startingOffsets="latest").start.timestamps == {a0: 1}
    assert read(startingOffsets="committed", group_id="g").start == Bound(word="committed")


def test_names_may_be_in_any_case_and_options_of_sparks_own_source_do_no_harm() -> None:
    found = read(True, MAXOFFSETSPERTRIGGER="10", includeheaders="TRUE", groupIdPrefix="x", maxTriggerDelay="2m")
    assert (found.max_offsets, found.include_headers, found.max_delay_ms) == (10, True, 120_000)
    cached = {"partition.metadata.cache.ttl.ms": "5000"}
    assert (found.partitions_ttl_ms, read(True, **cached).partitions_ttl_ms) == (1000, 5000)


def test_java_stores_are_client_configs() -> None:
    found = read(kafka_ssl_truststore_type="JKS", kafka_ssl_truststore_password="x", kafka_ssl_keystore_password="y")
    assert found.consumer_config()["ssl.truststore.password"] == found.admin_config()["ssl.truststore.password"] == "x"


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        ({"subscribe": "a,b"}, ["a-0", "a-1", "b-0"]),
        ({"subscribePattern": "[ac]"}, ["a-0", "a-1", "c-0"]),
        ({"assign": '{"a": [1], "b": [0]}'}, ["a-1", "b-0"]),
    ],
)
def test_partitions_of_other_topics_are_told_apart(options: dict[str, str], selected: list[str]) -> None:
    keys = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("c", 0)]
    assert [str(key) for key in keys if read(**options).topics.select(key)] == selected


def test_kafka_options_go_to_the_clients_that_know_them() -> None:
    found = read(kafka_fetch_min_bytes="5", kafka_isolation_level="read_committed", kafka_group_id="g")
    assert found.group_id == "g"
    assert found.isolation_level == "read_committed"
    consumer = found.consumer_config()
    assert consumer["fetch.min.bytes"] == "5"
    assert "group.id" not in consumer
    assert "fetch.min.bytes" not in found.admin_config()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are set"),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
        ({"assign": "[1]"}, "names no partitions"),
        ({"assign": '{"a": ["0"]}'}, "requires a list of partitions for topic a"),
        ({"assign": "{"}, "not valid JSON"),
        ({"startingOffsets": "newest"}, "startingOffsets is not valid JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "invalid value"),
        ({"startingOffsets": '{"a": 5}'}, "no partitions for topic a"),
        ({"startingOffsets": "latest"}, "must not be latest"),
        ({"startingOffsets": '{"a": {"0": 5, "1": -1}}'}, "must not be latest"),
        ({"endingOffsets": "earliest"}, "must not be earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "invalid value"),
        ({"startingTimestamp": "yesterday"}, "a whole number"),
        ({"startingTimestamp": "-4"}, "not negative"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "one of error, latest"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "10"}, "requires readStream"),
        ({"startingOffsets": "committed"}, "requires group.id"),
        ({"group_id": "a", "kafka_group_id": "b"}, "the same option"),
        ({"group_id": ""}, "group.id is empty"),
        ({"kafka_auto_offset_reset": "latest"}, "use startingOffsets"),
        ({"kafka_sasl_kerberos_service_name": "k"}, r"kafka\.sasl\.kerberos.* Kerberos is not supported"),
        ({"partition_metadata_cache_ttl_ms": "0"}, "at least 1"),
        ({"kafka_fetch_min_byte": "1"}, "Did you mean fetch.min.bytes"),
        ({"kafka_fetch_min_bytes": "few"}, "option kafka.fetch.min.bytes"),
        ({"includeHeader": "true"}, "Did you mean includeHeaders"),
        ({"path": "orders"}, "do not accept a path"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read(**options)


def test_mistakes_of_streams_are_named() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        read(True, endingOffsets="latest")
    with pytest.raises(OptionError, match="larger than maxOffsetsPerTrigger"):
        read(True, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
    with pytest.raises(OptionError, match="a duration such as"):
        read(True, maxTriggerDelay="soon")
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        ReadOptions.of({"subscribe": "a"}, streaming=True)
    with pytest.raises(OptionError, match=r"CREATE TABLE .* ottla\.spark\.activate"):
        ReadOptions.of({}, streaming=False)


def test_options_of_the_sink() -> None:
    once = {"deliver": "exactly-once"}
    assert WriteOptions.of({**SERVERS, "topic": "t", "kafka.acks": "1", "queryName": "q"}).topic == "t"
    for options, says in (
        ({"txnAppId": "a", "txnVersion": "1"}, "txnAppId requires deliver=exactly-once"),
        ({**once, "txnAppId": "a"}, "set together"),
        ({**once, "txnAppId": "a", "txnVersion": "-1"}, "at least 0"),
        ({**once, "txnAppId": " ", "txnVersion": "1"}, "txnAppId is empty"),
        ({**once, "transactionalIdPrefix": ""}, "transactionalIdPrefix is empty"),
        ({"deliver": "twice"}, "one of at-least-once"),
        ({"topic": ""}, "topic is empty"),
        ({"kafka.transactional.id": "x"}, "use deliver=exactly-once"),
        ({"kafka.linger": "1"}, "Did you mean linger.ms"),
        ({"subscribe": "t"}, "unknown option subscribe"),
    ):
        with pytest.raises(OptionError, match=says):
            WriteOptions.of({**SERVERS, **options})
    with pytest.raises(OptionError, match="a stream tracks its batches itself"):
        WriteOptions.of({**SERVERS, **once, "txnAppId": "a", "txnVersion": "1"}, streaming=True)
    with pytest.raises(ConfigError, match="acks"):
        WriteOptions.of({**SERVERS, **once, "kafka.acks": "1"})
    config = WriteOptions.of({**SERVERS, **once, "transactionalIdPrefix": "mine"}).producer_config()
    assert (config["transactional.id"], config["transaction.timeout.ms"]) == ("mine", "900000")
