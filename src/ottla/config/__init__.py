"""Configuration: one table each for topics, groups, the broker and the clients, and what is made of them. Pure.

fields.py      what a row of a table is: type, default, checks, documentation
table.py       reading a mapping of names and values against a table
topic.py       the table of a topic: `TopicConfig`
group.py       the table of a group: `GroupConfig`
broker.py      the table of the broker: `BrokerConfig`
client.py      what all clients share: `ClientConfig`; producer.py, consumer.py and admin.py have the rest
elsewhere.py   what other clients call those names
checks.py      rules that tie names of the broker together
foreign.py     names of Kafka that mean nothing here, and those that are refused
listeners.py   the notation of listeners
effective.py   how the broker's defaults and a topic's own settings make the topic's configuration
alter.py       what the requests to alter configurations do, and which alterations are refused
describe.py    what DescribeConfigs tells of a topic, a group or the broker
properties.py  Kafka's ``server.properties`` notation
reference.py   makes docs/reference/configuration.md: ``python -m ottla.config.reference``
"""

from ottla.config.alter import (
    Alteration,
    AlterOp,
    alter_broker,
    alter_group,
    alter_topic,
    replace_broker,
    replace_group,
    replace_topic,
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
from ottla.config.topic import TopicConfig

__all__ = [
    "AlterOp",
    "Alteration",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigSource",
    "ConfigType",
    "GroupConfig",
    "Listener",
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
    "replace_broker",
    "replace_group",
    "replace_topic",
]
