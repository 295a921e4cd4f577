"""Configuration: one table each for topics and for the broker, and what is made of them. Pure.

fields.py      what a row of a table is: type, default, checks, documentation
table.py       reading a mapping of names and values against a table
topic.py       the table of a topic: `TopicConfig`
broker.py      the table of the broker: `BrokerConfig`
listeners.py   the notation of listeners
effective.py   how the broker's defaults and a topic's own settings make the topic's configuration
alter.py       what the requests to alter configurations do, and which alterations are refused
describe.py    what DescribeConfigs tells of a topic or the broker
properties.py  Kafka's ``server.properties`` notation
reference.py   makes docs/reference/configuration.md: ``python -m ottla.config.reference``
"""

from ottla.config.broker import BrokerConfig
from ottla.config.effective import check_topic_overrides, effective_topic_config
from ottla.config.topic import TopicConfig

__all__ = ["BrokerConfig", "TopicConfig", "check_topic_overrides", "effective_topic_config"]
