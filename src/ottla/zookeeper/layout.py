"""The nodes of a cluster in ZooKeeper."""

from __future__ import annotations

from ottla.errors import OttlaError
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.values import ConnectionLost, Create, NodeExists, Rejected

LAYOUT_VERSION = 1

VERSION = "/version"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
METADATA = "/metadata"
LOG = "/metadata/log"
HEAD = "/metadata/head"
SNAPSHOT = "/metadata/snapshot"

_NODES = (
    Create(VERSION, str(LAYOUT_VERSION).encode()),
    Create(CLUSTER),
    Create(BROKERS),
    Create(BROKER_IDS),
    Create(CONTROLLER_EPOCH, b"0"),
    Create(METADATA),
    Create(LOG),
    Create(HEAD, b"0"),
    Create(SNAPSHOT),
)


class IncompatibleZooKeeper(OttlaError):
    """The nodes in ZooKeeper belong to another version or another program."""


async def prepare(zookeeper: ZooKeeper) -> None:
    """Create the nodes of a new cluster, or check that those of an existing one fit. Raises IncompatibleZooKeeper."""
    while True:
        found = await zookeeper.find(VERSION)
        if found is not None:
            _check(zookeeper, found.data)
            return
        try:
            await zookeeper.multi(*_NODES)
        except ConnectionLost:
            continue
        except Rejected as error:
            if not isinstance(error.reason, NodeExists):
                raise
            if error.index > 0:
                raise IncompatibleZooKeeper(
                    f"ZooKeeper at {zookeeper.address} has a node {_NODES[error.index].path} that is not ottla's; give "
                    f"this cluster a path of its own, for example zookeeper.connect={zookeeper.address}/ottla"
                ) from None


def _check(zookeeper: ZooKeeper, data: bytes) -> None:
    if data != str(LAYOUT_VERSION).encode():
        raise IncompatibleZooKeeper(
            f"the cluster at {zookeeper.address} has version {data.decode('utf-8', 'replace')!r} of the layout in "
            f"ZooKeeper, and this ottla has version {LAYOUT_VERSION}; use the ottla that the other brokers have"
        )


async def cluster_id(zookeeper: ZooKeeper, proposal: str) -> str:
    """Return the id of the cluster. The first proposal becomes the id."""
    while True:
        found = await zookeeper.find(CLUSTER_ID)
        if found is not None:
            return found.data.decode()
        try:
            await zookeeper.multi(Create(CLUSTER_ID, proposal.encode()))
        except (ConnectionLost, Rejected):
            continue
