"""The options of ``ottla broker`` become configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.broker import read_config
from ottla.cli.main import build_parser
from ottla.cli.options import UsageError
from ottla.config import BrokerConfig
from ottla.errors import ConfigError


def parsed(*arguments: str) -> BrokerConfig:
    return read_config(build_parser("broker").parse_args(["broker", *arguments]))


def test_a_broker_of_a_cluster(tmp_path: Path) -> None:
    config = parsed(
        *("--id", "2", "--zookeeper", "zk1:2181,zk2:2181/ottla", "--rack", "b"),
        *("--listen", "127.0.0.1:9093", "--data-dir", str(tmp_path)),
    )
    assert (config.id, config.zookeeper_connect, config.broker_rack) == (2, "zk1:2181,zk2:2181/ottla", "b")


def test_a_broker_is_alone_by_default(tmp_path: Path) -> None:
    config = parsed("--data-dir", str(tmp_path))
    assert (config.id, config.is_clustered, config.broker_rack) == (1, False, None)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=old:2181\nbroker.rack=a\nlog.dirs=/tmp/data\nnode.id=7\n")
    config = parsed("--config", str(file), "--zookeeper", "new:2181", "--id", "0")
    assert (config.id, config.zookeeper_connect, config.broker_rack) == (0, "new:2181", "a")


@pytest.mark.parametrize("name", ["log.dir", "log.dirs", "log_dir"])
def test_two_data_directories_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"the data directory is set twice: --data-dir .* --override {name}=/other"):
        parsed("--data-dir", str(tmp_path), "--override", f"{name}=/other")
    assert parsed("--data-dir", str(tmp_path), "--override", f"{name}={tmp_path}").data_dirs == (str(tmp_path),)
    assert parsed("--override", f"{name}={tmp_path}").data_dirs == (str(tmp_path),)


def test_a_wrong_address_of_zookeeper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="such as zk1:2181/ottla"):
        parsed("--zookeeper", "zk1", "--data-dir", str(tmp_path))


def test_the_first_consumer_waits_for_no_others_as_with_the_file_that_kafka_ships(tmp_path: Path) -> None:
    alone = parsed("--data-dir", str(tmp_path))
    assert alone.group_initial_rebalance_delay_ms == 0
    told = parsed("--data-dir", str(tmp_path), "--override", "group.initial.rebalance.delay.ms=7")
    assert told.group_initial_rebalance_delay_ms == 7
    member = parsed("--data-dir", str(tmp_path), "--zookeeper", "zk:2181")
    assert member.group_initial_rebalance_delay_ms == 3_000
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}\n")
    assert parsed("--config", str(file)).group_initial_rebalance_delay_ms == 3_000
