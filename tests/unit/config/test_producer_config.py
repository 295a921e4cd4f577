"""The producer's table: Kafka's defaults, and conflicting settings."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.producer import ProducerConfig
from ottla.errors import ConfigError


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.given({"bootstrap.servers": "localhost:9092"}, options)


def test_the_defaults_are_kafkas() -> None:
    defaults = config()
    assert (defaults.acks, defaults.required_acks, defaults.enable_idempotence) == ("all", -1, True)
    assert (defaults.linger_ms, defaults.batch_size, defaults.buffer_memory) == (5, 16_384, 32 * 1024 * 1024)
    assert (defaults.delivery_timeout_ms, defaults.request_timeout_ms, defaults.max_block_ms) == (
        120_000,
        30_000,
        60_000,
    )
    assert (defaults.max_in_flight_requests_per_connection, defaults.retries) == (5, 2**31 - 1)
    assert (defaults.compression_type, defaults.max_request_size) == ("none", 1_048_576)
    assert (defaults.metadata_max_age_ms, defaults.metadata_max_idle_ms) == (300_000, 300_000)


@pytest.mark.parametrize(("given", "wire"), [(0, 0), (1, 1), (-1, -1), ("all", -1), ("1", 1), ("-1", -1)])
def test_acks_are_numbers_or_text(given: int | str, wire: int) -> None:
    assert config(acks=given).required_acks == wire


def test_the_default_of_idempotence_gives_way_as_in_kafka() -> None:
    assert not config(acks=1).enable_idempotence
    assert not config(max_in_flight_requests_per_connection=6).enable_idempotence
    assert not config(retries=0).enable_idempotence
    assert config(acks="-1").enable_idempotence


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"enable_idempotence": True, "acks": 1}, "enable.idempotence requires acks=all, not acks=1"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"enable_idempotence": True, "retries": 0}, "requires retries above 0"),
        ({"delivery_timeout_ms": 30_000}, r"at least linger.ms \+ request.timeout.ms \(30005\)"),
        ({"transactional_id": "t", "acks": 1}, "enable.idempotence requires acks=all, not acks=1"),
        ({"transactional_id": "t", "enable_idempotence": False}, "transactional.id requires enable.idempotence=true"),
        ({"transactional_id": ""}, "must not be empty"),
        ({"acks": 2}, "one of all, -1, 0, 1"),
        ({"compression_type": "brotli"}, "one of none, gzip"),
        ({"compression_gzip_level": 0}, "-1, or between 1 and 9"),
        ({"linger": 5}, "Did you mean linger.ms"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config(**options)


def test_a_delivery_timeout_that_nobody_set_is_raised_to_what_a_batch_may_need(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert config(request_timeout_ms=130_000).delivery_timeout_ms == 130_005
    assert "delivery.timeout.ms is raised" in caplog.text
    caplog.clear()
    assert config(linger_ms="100000").delivery_timeout_ms == 130_000
    assert config(linger_ms=2**62).delivery_timeout_ms == 2**31 - 1
    assert config(linger_ms=2**62, delivery_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1
    caplog.clear()
    assert config(linger_ms=50_000).delivery_timeout_ms == 120_000
    assert caplog.text == ""
    with pytest.raises(ConfigError, match=r"must be at least linger\.ms"):
        config(request_timeout_ms=130_000, delivery_timeout_ms=120_000)


def test_the_case_matters_where_it_does_in_kafka() -> None:
    for options in ({"acks": "ALL"}, {"compression_type": "GZIP"}):
        with pytest.raises(ConfigError, match="must be one of"):
            config(**options)


def test_levels_belong_to_the_codec_in_use() -> None:
    assert config(compression_type="zstd", compression_zstd_level=7, compression_gzip_level=2).compression_level == 7
    assert config(compression_type="snappy").compression_level is None
    assert config().compression_level is None
