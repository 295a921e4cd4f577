"""Create, change and delete topics. The broker checks each change before it is confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from ottla.clients.admin.values import BROKER_DEFAULT, ConfigValue, NewTopic
from ottla.config import TopicConfig
from ottla.config.table import rows
from ottla.console.actions import Field, Form, Plan, Values, action
from ottla.console.collector import Key
from ottla.console.render import part, plural
from ottla.console.state import access_of
from ottla.console.views.commands import about, option
from ottla.console.views.paging import whole
from ottla.console.views.topics import config_rows, setting_lines
from ottla.errors import KafkaError
from ottla.monitoring.watch import Row
from ottla.types import wrong_with_topic_name

NAMED = 10


def readers(found: Mapping[Key, Row], topic: str) -> list[str]:
    """The groups that have committed offsets for a topic."""
    return sorted({group for group, key in found if key.topic == topic})


# ── create ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def create(request: Request, values: Values) -> Plan | Form:
    admin = access_of(request).admin
    if not values:
        return _create_form(values, None)
    try:
        topic = _new_topic(values)
        await admin.create_topics([topic], validate_only=True)
    except (KafkaError, ValueError) as error:
        return _create_form(values, str(error))

    async def do() -> str:
        await admin.create_topics([topic])
        return f"Created topic {topic.name}."

    configs = {name: str(value) for name, value in (topic.configs or {}).items()}
    return Plan(
        f"Create topic {topic.name}",
        [
            f"It gets {_counted(topic.num_partitions, 'partition')}, "
            f"each with {_counted(topic.replication_factor, 'replica')}.",
            *(f"{name} is {value}." for name, value in configs.items()),
        ],
        _create_command(topic, configs),
        do,
        button="Create",
        back="/topics",
        done=f"/topics/{part(topic.name)}",
    )


def _counted(count: int, noun: str) -> str:
    return f"the brokers' default number of {noun}s" if count == BROKER_DEFAULT else plural(count, noun)


def _create_command(topic: NewTopic, configs: Mapping[str, str]) -> list[str]:
    command: list[str] = []
    if topic.num_partitions != BROKER_DEFAULT:
        command += ["--partitions", str(topic.num_partitions)]
    if topic.replication_factor != BROKER_DEFAULT:
        command += ["--replication-factor", str(topic.replication_factor)]
    for name, value in configs.items():
        command += option("--config", f"{name}={value}")
    return about(["topics", "create"], topic.name, *command)


def _new_topic(values: Values) -> NewTopic:
    name = values.get("name", "").strip()
    wrong = wrong_with_topic_name(name)
    if wrong is not None:
        raise ValueError(f"the name {name!r} {wrong}" if name else "Give the topic a name.")
    partitions = _number(values.get("partitions", ""), "the number of partitions")
    factor = _number(values.get("replicas", ""), "the number of replicas")
    return NewTopic(name, partitions, factor, setting_lines(values.get("configs", "")))


def _number(text: str, what: str) -> int:
    if not text.strip():
        return BROKER_DEFAULT
    found = whole(text)
    if found is None or not 0 < found < 2**31:
        raise ValueError(f"{what} must be a whole number from 1 on, not {text[:40]!r}")
    return found


def _create_form(values: Values, problem: str | None) -> Form:
    names = ", ".join(list(rows(TopicConfig))[:3])
    return Form(
        "Create a topic",
        [
            Field("name", "Name", values.get("name", ""), required=True, placeholder="orders"),
            Field("partitions", "Partitions", values.get("partitions", ""), "number", "Empty: the brokers' default."),
            Field("replicas", "Replicas", values.get("replicas", ""), "number", "Empty: the brokers' default."),
            Field(
                "configs",
                "Configs",
                values.get("configs", ""),
                "textarea",
                f"One name=value per line, such as {names}.",
                placeholder="retention.ms=604800000",
            ),
        ],
        problem,
        back="/topics",
    )


# ── change ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def change_config(request: Request, values: Values) -> Plan | Form:
    access, topic = access_of(request), request.path_params["topic"]
    (known,) = (await access.admin.describe_configs([topic], include_documentation=True)).values()
    name, value, reset = values.get("name", ""), values.get("value"), bool(values.get("reset"))
    back = f"/topics/{part(topic)}#configs"
    if name not in known or (value is None and not reset):
        return _config_form(topic, known, values, None, back)
    change = None if reset else value
    try:
        await access.admin.alter_configs({topic: {name: change}}, validate_only=True)
    except (KafkaError, ValueError) as error:
        return _config_form(topic, known, values, str(error), back)

    async def do() -> str:
        await access.admin.alter_configs({topic: {name: change}})
        return f"Reset {name} of {topic}." if reset else f"Set {name} of {topic} to {value}."

    effect = "goes back to the brokers' value" if reset else f"changes to {value}"
    return Plan(
        f"Change {name} of {topic}",
        [f"{name} {effect}. It is {known[name].value} now.", *filter(None, [known[name].documentation])],
        about(["topics", "alter"], topic, *(["--delete-config", name] if reset else ["--config", f"{name}={value}"])),
        do,
        button="Reset" if reset else "Change",
        back=back,
    )


def _config_form(topic: str, known: Mapping[str, ConfigValue], values: Values, problem: str | None, back: str) -> Form:
    name = values.get("name", "")
    names = [row.name for row in sorted(config_rows(known), key=lambda row: row.name) if not row.read_only]
    chosen = known.get(name)
    now = chosen.value if chosen is not None and chosen.value is not None else ""
    documentation = {row.name: row.documentation for row in config_rows(known)}.get(name) or ""
    return Form(
        f"Change a config of {topic}",
        [
            Field("name", "Config", name, "select", documentation, [(one, one) for one in names], required=True),
            Field("value", "New value", values.get("value", now), help=f"It is {now} now." if now else ""),
            Field("reset", "Reset to the brokers' value instead", values.get("reset", ""), "checkbox"),
        ],
        problem,
        back=back,
    )


async def add_partitions(request: Request, values: Values) -> Plan | Form:
    access, name = access_of(request), request.path_params["topic"]
    now = len((await access.admin.cluster.topic(name)).partitions)
    back = f"/topics/{part(name)}"

    def form(problem: str | None) -> Form:
        field = Field("total", "Partitions in all", values.get("total", str(now + 1)), "number", required=True)
        return Form(f"Add partitions to {name}", [field], problem, f"It has {plural(now, 'partition')}.", back=back)

    if not values:
        return form(None)
    try:
        total = _number(values.get("total", ""), "the number of partitions")
        if total <= now:
            raise ValueError(f"{name} has {plural(now, 'partition')} already, and partitions cannot be removed")
        await access.admin.create_partitions({name: total}, validate_only=True)
    except (KafkaError, ValueError) as error:
        return form(str(error))

    async def do() -> str:
        await access.admin.create_partitions({name: total})
        return f"{name} has {plural(total, 'partition')} now."

    return Plan(
        f"Add {plural(total - now, 'partition')} to {name}",
        [
            f"{name} has {now:,} partitions, and will have {total:,}. Partitions cannot be removed again.",
            "New records of a key may go to another partition than its old ones.",
            "Groups that read the topic rebalance.",
        ],
        about(["topics", "alter"], name, "--partitions", str(total)),
        do,
        button="Add",
        back=back,
    )


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete(request: Request, values: Values) -> Plan | Form:
    access, name = access_of(request), request.path_params["topic"]
    topic = await access.admin.cluster.topic(name)
    snapshot = await access.collector.current()
    groups = readers(snapshot.rows or {}, name)

    async def do() -> str:
        await access.admin.delete_topics([name])
        return f"Deleted topic {name}."

    effects = [f"{name} and the records in its {plural(len(topic.partitions), 'partition')} are deleted for good."]
    if groups:
        more = f" and {len(groups) - NAMED} more" if len(groups) > NAMED else ""
        effects.append(f"It is read by {', '.join(groups[:NAMED])}{more}.")
    if topic.internal:
        effects.append("It is an internal topic: the brokers need it.")
    return Plan(
        f"Delete topic {name}",
        effects,
        about(["topics", "delete"], name),
        do,
        button="Delete",
        danger=True,
        back=f"/topics/{part(name)}",
        done="/topics",
    )


routes = [
    action("/create-topic", create),
    action("/topics/{topic:name}/config", change_config),
    action("/topics/{topic:name}/partitions", add_partitions),
    action("/topics/{topic:name}/delete", delete),
]
