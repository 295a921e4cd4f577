"""Configuration tables of topics, groups, the broker and the clients. Pure.

fields.py      a row of a table: type, default, checks, documentation
table.py       read names and values against a table
topic.py       `TopicConfig`
group.py       `GroupConfig`
broker.py      `BrokerConfig`; replication.py has its rows about clusters
security.py    `ListenerSecurity`, and the broker's rows about security; channels.py has those of single listeners
client.py      `ClientConfig`, the rows that all clients share; producer.py, consumer.py, admin.py have the rest
elsewhere.py   hints for names of other clients
open_doors.py  warnings about configs that are not secure
checks.py      rules that involve several names of the broker
foreign.py     Kafka's broker names that are ignored or rejected; unused.py has the types of ignored ones
listeners.py   parse listeners
effective.py   combine the broker's defaults and a topic's overrides
alter.py       AlterConfigs and IncrementalAlterConfigs
describe.py    DescribeConfigs
properties.py  read ``server.properties``
reference.py   writes docs/reference/configuration.md: ``python -m ottla.config.reference``
"""

from ottla.config.alter import (
    Alteration,
    AlterOp,
    Change,
    alter_broker,
    alter_group,
    alter_topic,
)
from ottla.config.broker import BrokerConfig
from ottla.config.describe import (
    ConfigEntry,
    ConfigSource,
    Synonym,
    describe_broker,
    describe_broker_default,
    describe_group,
    describe_topic,
)
from ottla.config.effective import check_topic_overrides, effective_topic_config
from ottla.config.fields import ConfigType
from ottla.config.group import GroupConfig, effective_group_config
from ottla.config.listeners import Listener, parse_address
from ottla.config.properties import parse_broker_properties, parse_properties
from ottla.config.security import ListenerSecurity
from ottla.config.topic import TopicConfig

__all__ = [
    "AlterOp",
    "Alteration",
    "BrokerConfig",
    "Change",
    "ConfigEntry",
    "ConfigSource",
    "ConfigType",
    "GroupConfig",
    "Listener",
    "ListenerSecurity",
    "Synonym",
    "TopicConfig",
    "alter_broker",
    "alter_group",
    "alter_topic",
    "check_topic_overrides",
    "describe_broker",
    "describe_broker_default",
    "describe_group",
    "describe_topic",
    "effective_group_config",
    "effective_topic_config",
    "parse_address",
    "parse_broker_properties",
    "parse_properties",
]
