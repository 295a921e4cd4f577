"""References to environment variables and files in config values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config import BrokerConfig, parse_broker_properties
from ottla.config.consumer import ConsumerConfig
from ottla.config.secrets import resolved
from ottla.errors import ConfigError

BROKERS = {"bootstrap.servers": "localhost:9092"}


def test_an_environment_variable_and_a_file_stand_for_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "from env")
    (tmp_path / "password").write_text("from file\n")
    values = {"a": "${env:MY_PASSWORD}", "b": f"${{file:{tmp_path}/password}}", "c": "x ${env:MY_PASSWORD} y", "d": 3}
    assert resolved(values) == {"a": "from env", "b": "from file", "c": "x from env y", "d": 3}


def test_a_value_of_a_properties_file_is_named_after_a_colon(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("user=alice\npassword=a:b\n")
    assert resolved({"a": f"${{file:{tmp_path}/secrets.properties:password}}"}) == {"a": "a:b"}
    with pytest.raises(ConfigError, match="but the file has no value named other"):
        resolved({"a": f"${{file:{tmp_path}/secrets.properties:other}}"})


def test_what_looks_like_a_reference_of_another_kind_stays() -> None:
    assert resolved({"a": "${vault:secret}", "b": "100 $ {env:X}"}) == {"a": "${vault:secret}", "b": "100 $ {env:X}"}


def test_a_missing_variable_or_file_is_named_together_with_the_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.given(BROKERS, {"sasl_password": "${env:NOT_SET_ANYWHERE}"})
    assert str(error.value) == (
        "sasl.password refers to ${env:NOT_SET_ANYWHERE}, but the environment variable NOT_SET_ANYWHERE is not set."
    )
    with pytest.raises(ConfigError, match=r"ssl.key.password refers to .* cannot be read: No such file or directory"):
        ConsumerConfig.given({**BROKERS, "ssl.key.password": f"${{file:{tmp_path}/none}}"}, {})


def test_clients_resolve_what_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "s3cret")
    assert ConsumerConfig.given(BROKERS, {"sasl_password": "${env:MY_PASSWORD}"}).sasl_password == "s3cret"


def test_a_properties_file_of_a_broker_is_resolved_and_an_error_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PARTITIONS", "7")
    assert parse_broker_properties("num.partitions=${env:MY_PARTITIONS}").num_partitions == 7
    with pytest.raises(ConfigError, match=r"server.properties, line 2: log.dirs refers to \$\{env:NOT_SET_ANYWHERE\}"):
        parse_broker_properties("num.partitions=1\nlog.dirs=${env:NOT_SET_ANYWHERE}")


def test_what_a_client_sets_at_a_broker_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")
    config = BrokerConfig.parse({}).with_dynamic({"max.connections.per.ip.overrides": ""})
    assert "s3cret" not in str(config.given)
    with pytest.raises(ConfigError, match=r"\$\{env:MY_SECRET\}"):
        BrokerConfig.parse({}).with_dynamic({"log.retention.ms": "${env:MY_SECRET}"})


def test_passwords_are_not_part_of_a_printed_config() -> None:
    config = ConsumerConfig.given(BROKERS, {"sasl_password": "s3cret", "ssl_key_password": "s3cret"})
    assert "s3cret" not in repr(config)
