"""The reference page of all configurations, made from the tables.

``python -m ottla.config.reference > docs/reference/configuration.md`` renews the page; a test fails while it
is out of date. Change the sentences in the tables (topic.py, group.py, broker.py, client.py, producer.py, consumer.py,
admin.py), and the frame of the page here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from ottla.config.admin import AdminConfig
from ottla.config.broker import BrokerConfig
from ottla.config.client import ClientConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.effective import BROKER_NAMES
from ottla.config.fields import DOUBLE_MAX, INT_MAX, LONG_MAX, Key
from ottla.config.group import GroupConfig
from ottla.config.producer import ProducerConfig
from ottla.config.table import ConfigTable
from ottla.config.topic import TopicConfig

_TITLE = """# Configuration reference

Made from the tables of `ottla.config` by `python -m ottla.config.reference`; do not edit it by hand.

Names, types, defaults and ranges are Kafka's, apart from the names that start with `ottla.`. A name that does
not exist and a value out of range are refused with an error that says so. In Python the dots may be written
as underscores (`num_partitions=3`).
"""

_TOPIC = """## Topics

Set when a topic is created (`ottla topics create --config name=value`) or later (`ottla topics alter`). A
topic without a setting of its own follows the broker's: the first of the names under "Broker's name" that is
set.

| Name | Type | Default | Range | Broker's name | Meaning |
| --- | --- | --- | --- | --- | --- |
"""

_BROKER = """## Broker

Set in the file of `ottla broker --config FILE` (the notation of Kafka's `server.properties`). Those marked
"yes" can be altered while the broker runs. Names of Kafka that have nothing to set here, such as
`num.io.threads`, are left aside with a warning; names that ask for TLS, SASL or authorization are refused.

| Name | Type | Default | Range | Alterable | Meaning |
| --- | --- | --- | --- | --- | --- |
"""

_GROUPS = """## Groups

Set for a single group of the consumer protocol (`ottla groups configs GROUP --config name=value`), within what
the broker's `group.consumer.min.…` and `group.consumer.max.…` allow. A group without a setting of its own
follows the broker's.

"""

_CLIENTS = """## Clients

Given to `ottla.Producer`, `ottla.Consumer`, `ottla.Admin` and their twins in `ottla.aio`, as a mapping
(`{"client.id": "billing"}`), as keywords (`client_id="billing"`) or both; the commands read them from the file of
`--command-config`. All clients have these:

"""
_PRODUCER = """### Producer

What only a producer has.

"""
_CONSUMER = """### Consumer

What only a consumer has.

"""
_ADMIN = """### Admin

What only an admin client has, or has with another default.

"""
_PLAIN_HEAD = "| Name | Type | Default | Range | Meaning |\n| --- | --- | --- | --- | --- |\n"


def render() -> str:
    """The whole page."""
    topics = (_row(key, _broker_names(key.name)) for key in _shown(TopicConfig.rows()))
    broker = (_row(key, "yes" if key.dynamic else "no") for key in _shown(BrokerConfig.rows()))
    parts = [_TITLE, f"{_TOPIC}{''.join(topics)}", f"{_BROKER}{''.join(broker)}"]
    parts.append(f"{_GROUPS}{_plain_table(GroupConfig, None)}")
    parts.append(f"{_CLIENTS}{_plain_table(ClientConfig, None)}")
    for head, table in ((_PRODUCER, ProducerConfig), (_CONSUMER, ConsumerConfig), (_ADMIN, AdminConfig)):
        parts.append(f"{head}{_plain_table(table, ClientConfig)}")
    return "\n".join(parts)


def _plain_table(table: type[ConfigTable], shared: type[ConfigTable] | None) -> str:
    """The rows of a table that differ from those that all clients share."""
    known = {name: key.default for name, key in shared.rows().items()} if shared is not None else {}
    rows = [key for key in _shown(table.rows()) if key.name not in known or key.default != known[key.name]]
    return _PLAIN_HEAD + "".join(_line(*_cells(key), key.doc) for key in rows)


def _shown(rows: Mapping[str, Key]) -> Iterator[Key]:
    return (key for key in rows.values() if not key.internal)


def _row(key: Key, column: str) -> str:
    return _line(*_cells(key), column, key.doc)


def _cells(key: Key) -> tuple[str, ...]:
    checks = "; ".join(check.says for check in key.checks)
    return f"`{key.name}`", key.type.name.lower(), _default(key), checks


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(key: Key) -> str:
    if key.default is None:
        return "not set"
    if key.default in (INT_MAX, LONG_MAX, DOUBLE_MAX):
        return f"{key.format(key.default)} (no limit)"
    return f"`{key.format(key.default)}`" if key.format(key.default) else "empty"


def _broker_names(name: str) -> str:
    return ", ".join(f"`{each.name}`" for each in BROKER_NAMES.get(name, ()))


if __name__ == "__main__":
    sys.stdout.write(render())
