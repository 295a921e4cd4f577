"""Kafka's broker configs that have no effect here, with their types and defaults.

Tools can read them, and change those that Kafka lets them change. When a name gets a meaning, move it to broker.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config.fields import ConfigType, Key

_DOC = "Has no effect on this broker."
# Name, type, default (- for none), and whether it can be changed while the broker runs.
_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int 100
add.partitions.to.txn.retry.backoff.ms int 20
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
background.threads int 10 dynamic
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
controller.performance.always.log.threshold.ms long 2000
controller.performance.sample.period.ms long 60000
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.socket.timeout.ms int 30000
delete.records.purgatory.purge.interval.requests int 1
fetch.purgatory.purge.interval.requests int 1000
initial.broker.registration.timeout.ms int 60000
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list -
log.cleaner.threads int 1 dynamic
log.dir.failure.timeout.ms long 30000
log.flush.start.offset.checkpoint.interval.ms int 60000
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list - dynamic
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.io.threads int 8 dynamic
num.network.threads int 3 dynamic
num.recovery.threads.per.data.dir int 2 dynamic
num.replica.alter.log.dirs.threads int -
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
producer.purgatory.purge.interval.requests int 1000
queued.max.request.bytes long -1
queued.max.requests int 500
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
request.timeout.ms int 30000
server.max.startup.time.ms long 9223372036854775807
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
telemetry.max.bytes int 1048576
transaction.state.log.load.buffer.size int 5242880
transaction.two.phase.commit.enable boolean false
unclean.leader.election.interval.ms long 300000
"""


def _key(name: str, kind: str, default: str, *dynamic: str) -> Key:
    row = Key(name, ConfigType[kind.upper()], None, _DOC, dynamic=bool(dynamic))
    value: Any = None if default == "-" else row.parse(default)
    return Key(name, row.type, () if kind == "list" else value, _DOC, dynamic=row.dynamic)


UNUSED: Mapping[str, Key] = {line.split()[0]: _key(*line.split()) for line in _TABLE.strip().splitlines()}
"""The rows by name."""
