"""Check where a pipeline sends its lineage and events."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from ottla.config.secrets import resolved_value
from ottla.errors import ConfigError
from ottla.exporter.settings import is_url
from ottla.spark.pipelines.declaration import Events, Lineage, Problem
from ottla.types import wrong_with_topic_name


def lineage_problems(lineage: Lineage) -> Iterator[Problem]:
    if lineage.transport and not isinstance(lineage.transport.get("type"), str):
        text = 'transport needs a type: transport = {type = "http", url = "http://localhost:5000"}'
        yield lineage.where.problem(text, "transport")
    if importlib.util.find_spec("openlineage") is None:
        yield lineage.where.problem("lineage needs a package: pip install 'ottla[lineage]'")


def events_problems(events: Events) -> Iterator[Problem]:
    if not (events.webhook or events.log or events.topic):
        yield events.where.problem("events need a place: set webhook, log or topic")
    if events.webhook:
        try:
            address = resolved_value("webhook", events.webhook)
        except ConfigError as error:
            yield events.where.problem(str(error), "webhook")
        else:
            if not is_url(address):  # the address may have a secret in it
                text = "webhook must be an address such as https://alerts.example.com/pipelines"
                yield events.where.problem(text, "webhook")
    wrong = wrong_with_topic_name(events.topic) if events.topic else None
    if wrong is not None:
        yield events.where.problem(f"topic: {events.topic!r} {wrong}", "topic")
