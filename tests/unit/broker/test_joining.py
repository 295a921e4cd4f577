"""The data directory of a broker that joins a cluster: whose it is, and whether its last run lost anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.cluster import joining
from ottla.broker.cluster.joining import Joining, WrongCluster, refuse_member_of_cluster, remember_life
from ottla.config import BrokerConfig
from ottla.metadata import Metadata
from ottla.metadata.records import ClusterCreated, TopicCreated, from_json, to_json
from ottla.runtime.journal import FileJournal
from ottla.storage.data_dir import DataDirUnusable


def node(*directories: Path, failed: Path | None = None, **configs: Any) -> Any:
    config = BrokerConfig.parse({"zookeeper.connect": "zk:2181", **configs})
    working = [path for path in directories if path != failed]
    failures = {} if failed is None else {failed: f"cannot use {failed}"}
    logs = SimpleNamespace(data_dirs=directories, working_dirs=working, failed_dirs=failures)
    return SimpleNamespace(id=1, config=config, metadata=Metadata(), logs=logs)


def alone(directory: Path, cluster_id: str = "mine") -> None:
    """Leave what a broker without ZooKeeper leaves."""
    journal = FileJournal(directory / "metadata.journal", to_json, from_json)
    journal.open()
    journal.append([ClusterCreated(cluster_id), TopicCreated("orders", UUID(int=7), 2, {})])
    journal.close()


def first_state(member: Any) -> Metadata:
    state = Metadata()
    state.replay_batch(Joining(member, "metadata.journal").first_records())
    return state


def test_a_new_cluster_has_an_id_and_one_minimum_of_in_sync_replicas(tmp_path: Path) -> None:
    state = first_state(node(tmp_path, **{"min.insync.replicas": 2}))
    assert state.cluster_id
    assert state.cluster_configs == {"min.insync.replicas": "2"}


def test_a_broker_that_was_alone_brings_its_topics_and_its_cluster_id(tmp_path: Path) -> None:
    alone(tmp_path)
    state = first_state(node(tmp_path))
    assert state.cluster_id == "mine"
    assert [partition.replicas for partition in state.topic("orders").states] == [(1,), (1,)]
    assert not state.brokers


def test_a_member_is_refused_by_another_cluster_and_by_a_broker_without_zookeeper(tmp_path: Path) -> None:
    alone(tmp_path)
    member = node(tmp_path)
    joins = Joining(member, "metadata.journal")
    member.metadata.replay(ClusterCreated("mine"))
    joins.check()
    joins.joined()
    assert not (tmp_path / "metadata.journal").exists()
    other = node(tmp_path)
    other.metadata.replay(ClusterCreated("theirs"))
    with pytest.raises(WrongCluster, match=r"belongs to the cluster mine, but .* is the cluster theirs"):
        Joining(other, "metadata.journal").check()
    with pytest.raises(WrongCluster, match=r"start it with its zookeeper\.connect"):
        refuse_member_of_cluster(tmp_path)


def test_kill_9_loses_nothing_while_the_operating_system_runs_on(tmp_path: Path, monkeypatch: Any) -> None:
    joins = Joining(node(tmp_path), "metadata.journal")
    assert joins.previous_epoch(-1) == -1
    remember_life([tmp_path], 17)
    assert joins.previous_epoch(-1) == 17
    assert joins.previous_epoch(21) == 21
    monkeypatch.setattr(joining, "boot_id", lambda: "after a crash of the machine")
    assert joins.previous_epoch(-1) == -1


def two(tmp_path: Path) -> list[Path]:
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        directory.mkdir()
    return directories


def test_a_data_directory_that_was_replaced_has_lost_something(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    joins = Joining(node(first, second), "metadata.journal")
    remember_life([first, second], 17)
    assert joins.previous_epoch(-1) == 17
    (second / joining.LIFE).unlink()
    assert joins.previous_epoch(-1) == -1


def test_a_member_joins_again_without_its_first_data_directory(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    member = node(first, second)
    member.metadata.replay(ClusterCreated("mine"))
    joins = Joining(member, "metadata.journal")
    joins.joined()
    remember_life([first, second], 17)
    joins = Joining(node(first, second, failed=first), "metadata.journal")
    assert joins.previous_epoch(-1) == 17
    other = node(first, second, failed=first)
    other.metadata.replay(ClusterCreated("theirs"))
    with pytest.raises(WrongCluster, match="b belongs to the cluster mine"):
        Joining(other, "metadata.journal").check()


def test_a_broker_that_was_alone_does_not_join_without_its_first_data_directory(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    alone(first)
    with pytest.raises(DataDirUnusable, match=r"cannot use .*a; it is the first data directory"):
        Joining(node(first, second, failed=first), "metadata.journal")
    assert first_state(node(first, second, failed=second)).cluster_id == "mine"
