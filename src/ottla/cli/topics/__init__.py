"""``ottla topics list|create|describe|alter|delete|reassign|elect-leaders``."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Mapping

from ottla.cli.options import (
    UsageError,
    add_config_option,
    add_config_options,
    config_changes,
    positive,
    settings,
)
from ottla.cli.session import add_action, existing_topic
from ottla.cli.terminal import plural, print_json, table
from ottla.cli.topics import describe, elections, reassign
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import BROKER_DEFAULT, NewTopic
from ottla.clients.cluster.metadata import TopicInfo, format_topic_id
from ottla.config import TopicConfig
from ottla.config.table import rows
from ottla.errors import (
    InvalidConfig,
    KafkaError,
    OttlaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ottla.suggestions import hint as did_you_mean
from ottla.types import Millis

CREATED_TIMEOUT_MS: Millis = 5_000
CONFIG_HELP = "a topic config, such as retention.ms=60000; repeatable"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_list(add_action(actions, "list", list_topics, "list the topics"))
    _configure_create(add_action(actions, "create", create, "create topics"))
    summary = "show partitions, replicas, offsets and configs"
    describe.configure(add_action(actions, "describe", describe.describe, summary))
    _configure_alter(add_action(actions, "alter", alter, "add partitions, set and unset configs"))
    _configure_delete(add_action(actions, "delete", delete, "delete topics and their records"))
    summary = "change how many replicas topics have, and where"
    reassign.configure(add_action(actions, "reassign", reassign.reassign, summary))
    summary = "give leadership to the first replicas"
    elections.configure(add_action(actions, "elect-leaders", elections.elect_leaders, summary))


# list


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--exclude-internal", action="store_true", help="hide internal topics")
    parser.add_argument("-q", "--quiet", action="store_true", help="only names, one per line")


async def list_topics(admin: AsyncAdmin, args: Namespace) -> int:
    topics = sorted((await admin.cluster.refresh(None)).topics.values(), key=lambda topic: topic.name)
    topics = [topic for topic in topics if not (args.exclude_internal and topic.internal)]
    if args.json:
        print_json([_summary(topic) for topic in topics])
    elif args.quiet:
        print("\n".join(topic.name for topic in topics), end="\n" if topics else "")
    elif not topics:
        print("no topics exist yet: create one with `ottla topics create NAME`")
    else:
        rows = [[topic.name, len(topic.partitions), topic.replication_factor] for topic in topics]
        print(table(["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"], rows))
    return 0


def _summary(topic: TopicInfo) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": format_topic_id(topic.topic_id) if topic.topic_id is not None else None,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


# create


def _configure_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partitions", type=positive, help="number of partitions (default: the broker's num.partitions)"
    )
    parser.add_argument(
        "-r",
        "--replication-factor",
        type=positive,
        help="replicas of each partition (default: the broker's default.replication.factor)",
    )
    add_config_option(parser, CONFIG_HELP)
    parser.add_argument("--if-not-exists", action="store_true", help="ignore topics that exist already")
    parser.add_argument(
        "--validate-only", action="store_true", help="let the broker validate the request, but create nothing"
    )


async def create(admin: AsyncAdmin, args: Namespace) -> int:
    configs = settings(args.config)
    partitions = args.partitions or BROKER_DEFAULT
    factor = args.replication_factor or BROKER_DEFAULT
    new = [NewTopic(name, partitions, factor, configs) for name in dict.fromkeys(args.topics)]
    results = await admin.create_topics(new, validate_only=args.validate_only, raise_errors=False)
    errors = {topic.name: results.errors.get(topic.name) for topic in new}
    ignored = TopicAlreadyExists if args.if_not_exists else None
    done = _outcomes(args, errors, "valid" if args.validate_only else "created", ignored, "exists", configs)
    if not args.validate_only and not args.json:
        await _tell_created(admin, [name for name in done if errors[name] is None])
    _raise_first(errors, ignored, configs)
    return 0


async def _tell_created(admin: AsyncAdmin, names: list[str]) -> None:
    for name in names:
        topic = await _await_topic(admin, name)
        print(
            f"created topic {name}: {plural(len(topic.partitions), 'partition')}, "
            f"replication factor {topic.replication_factor}"
        )


async def _await_topic(admin: AsyncAdmin, name: str) -> TopicInfo:
    """Wait for the metadata of a new topic, which may arrive a moment later."""
    attempts = admin.cluster.attempts(CREATED_TIMEOUT_MS)
    while True:
        try:
            return await admin.cluster.topic(name)
        except UnknownTopicOrPartition:
            if not await attempts.pause():
                raise


# delete


def _configure_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")


async def delete(admin: AsyncAdmin, args: Namespace) -> int:
    results = await admin.delete_topics(args.topics, raise_errors=False)
    errors = {name: results.errors.get(name) for name in dict.fromkeys(args.topics)}
    ignored = UnknownTopicOrPartition if args.if_exists else None
    done = _outcomes(args, errors, "deleted", ignored, "missing", {})
    if not args.json:
        for name in done:
            print(f"deleted topic {name}" if errors[name] is None else f"topic {name} does not exist")
    if ignored is None and any(isinstance(error, UnknownTopicOrPartition) for error in errors.values()):
        errors = {name: await _with_nearest(admin, name, error) for name, error in errors.items()}
    _raise_first(errors, ignored, {})
    return 0


async def _with_nearest(admin: AsyncAdmin, name: str, error: KafkaError | None) -> KafkaError | None:
    if isinstance(error, UnknownTopicOrPartition):
        try:
            await existing_topic(admin, name)
        except UnknownTopicOrPartition as better:
            return better
    return error


def _outcomes(
    args: Namespace,
    errors: Mapping[str, KafkaError | None],
    status: str,
    ignored: type[KafkaError] | None,
    ignored_status: str,
    configs: Mapping[str, str],
) -> list[str]:
    """Print the outcomes with --json; returns the topics without errors."""
    statuses = {
        name: status if error is None else ignored_status if ignored and isinstance(error, ignored) else "failed"
        for name, error in errors.items()
    }
    if args.json:
        print_json(
            [
                {"topic": name, "status": statuses[name]}
                | ({"error": _explained(error, configs)} if error and statuses[name] == "failed" else {})
                for name, error in errors.items()
            ]
        )
    return [name for name in errors if statuses[name] != "failed"]


def _raise_first(
    errors: Mapping[str, KafkaError | None], ignored: type[KafkaError] | None, configs: Mapping[str, str]
) -> None:
    failed = {name: error for name, error in errors.items() if error and not (ignored and isinstance(error, ignored))}
    if failed:
        reasons = [(name, _explained(error, configs).rstrip(".")) for name, error in failed.items()]
        raise OttlaError("; ".join(why if name in why else f"{name}: {why}" for name, why in reasons))


def _explained(error: KafkaError, configs: Iterable[str]) -> str:
    """The broker's message, with a suggestion for an unknown config."""
    message = str(error)
    if isinstance(error, InvalidConfig):
        for name in configs:
            hint = did_you_mean(name, rows(TopicConfig))
            if name not in rows(TopicConfig) and hint and "did you mean" not in message.lower():
                return f"{message.rstrip('.')}{hint}"
    return message


# alter


def _configure_alter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partitions", type=positive, help="the new number of partitions, larger than the current one"
    )
    add_config_options(parser, CONFIG_HELP)


async def alter(admin: AsyncAdmin, args: Namespace) -> int:
    changes = config_changes(args)
    if not changes and args.partitions is None:
        raise UsageError("nothing to alter: use --partitions, --config or --delete-config")
    topic = await existing_topic(admin, args.topic)
    if changes:
        try:
            await admin.alter_configs({topic.name: changes})
        except InvalidConfig as error:
            raise OttlaError(f"{topic.name}: {_explained(error, changes)}") from None
    if args.partitions is not None:
        await admin.create_partitions({topic.name: args.partitions})
    _tell_altered(args, settings(args.config))
    return 0


def _tell_altered(args: Namespace, configs: Mapping[str, str]) -> None:
    if args.json:
        outcome = {"topic": args.topic, "status": "altered", "set": configs, "unset": args.delete_config}
        print_json([outcome | ({"partitions": args.partitions} if args.partitions else {})])
        return
    changes = [f"{name}={value}" for name, value in configs.items()]
    changes += [f"{name} unset" for name in args.delete_config]
    changes += [plural(args.partitions, "partition")] if args.partitions else []
    print(f"altered topic {args.topic}: {', '.join(changes)}")
