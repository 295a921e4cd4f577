"""MirrorMaker: a topic with its configs and the offsets of a group go to another broker while it is killed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.peer import Peer
from tests.ecosystem.jvm import Failed, Program, running, until
from tests.ecosystem.topics import committed, create

import ottla

RECORDS = 3000
TOPIC, MIRRORED, GROUP = "orders", "west.orders", "billing"


def run(broker: Peer, directory: Path) -> str:
    """Mirror a topic under kills; return a line about the result."""
    west, values = broker.bootstrap_servers, [f"order {number}" for number in range(RECORDS)]
    create(west, ottla.NewTopic(TOPIC, 2, configs={"retention.ms": "123456789"}))
    with ExitStack() as stack:
        other = stack.enter_context(type(broker)(broker.config))
        east = other.bootstrap_servers
        maker = _mirror_maker(directory, west, east)
        stack.enter_context(running(maker))
        _send(west, values[:1000])
        _read(west, 700)
        until(lambda: _there(east) >= set(values[:1000]), "records are not mirrored", maker)
        maker.kill()
        _send(west, values[1000:2000])
        maker.start()
        until(lambda: _there(east) >= set(values[:2000]), "it was killed, records are missing", maker)
        other.kill()
        _send(west, values[2000:])
        other.start()
        until(lambda: _there(east) >= set(values), "the target was killed, records are missing", maker)
        until(lambda: _offsets(east) is not None, "offsets of the group are not mirrored", maker)
        maker.stop()
        mirrored = [record.value.decode() for record in committed(east, MIRRORED) if record.value]
        if sorted(mirrored) != sorted(values):
            raise Failed(f"exactly once: {len(values)} records became {len(mirrored)}")
        offset = _offsets(east)
        if offset is None or not 0 < offset <= 700:
            raise Failed(f"the group has read 700 records, and its mirrored offsets are {offset}")
        with ottla.Admin(bootstrap_servers=east) as admin:
            (configs,) = admin.describe_configs(MIRRORED).values()
        retention = configs["retention.ms"].value
        if retention != "123456789":
            raise Failed(f"retention.ms was not mirrored: {retention}")
    return f"{RECORDS:,} records, each exactly once, configs and group offsets; 1 kill of MirrorMaker, 1 of the target"


def _mirror_maker(directory: Path, west: str, east: str) -> Program:
    config = {
        "clusters": "west, east",
        "west.bootstrap.servers": west,
        "east.bootstrap.servers": east,
        "west->east.enabled": "true",
        "east->west.enabled": "false",
        "west->east.topics": TOPIC,
        "west->east.groups": GROUP,
        "tasks.max": "2",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "west->east.sync.group.offsets.enabled": "true",
        "west->east.sync.group.offsets.interval.seconds": "1",
        "west->east.emit.checkpoints.interval.seconds": "1",
        "west->east.offset.lag.max": "0",
        "west->east.refresh.topics.interval.seconds": "2",
        "west->east.refresh.groups.interval.seconds": "2",
        "west->east.sync.topic.configs.interval.seconds": "2",
        "east.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
    }
    file = directory / "mirror.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in config.items()))
    return Program(directory, "mirror-maker", "org.apache.kafka.connect.mirror.MirrorMaker", [str(file)])


def _send(address: str, values: list[str]) -> None:
    with ottla.Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(TOPIC, value.encode())


def _read(address: str, count: int) -> None:
    """Read some records with the group, and commit."""
    with ottla.Consumer(
        bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([TOPIC])
        while count > 0:
            count -= len(consumer.poll(1, max_records=min(count, 100)))
        consumer.commit()


def _there(address: str) -> set[str]:
    try:
        return {record.value.decode() for record in committed(address, MIRRORED) if record.value}
    except ottla.OttlaError:
        return set()


def _offsets(address: str) -> int | None:
    with ottla.Admin(bootstrap_servers=address) as admin:
        try:
            found = admin.list_group_offsets(GROUP)
        except ottla.OttlaError:
            return None
    offsets = [each.offset for partition, each in found.items() if partition.topic == MIRRORED]
    return sum(offsets) if offsets else None
