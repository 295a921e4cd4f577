"""The `ottla` commands that pages show. A name may begin with a minus, and is still no option."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def about(command: Sequence[str], name: str, *options: str) -> list[str]:
    """The arguments of a command about something with a name, which may look like an option.

    >>> about(["groups", "delete"], "billing"), about(["groups", "plan"], "-x", "--add", "1")
    (['groups', 'delete', 'billing'], ['groups', 'plan', '--add', '1', '--', '-x'])
    """
    return [*command, *options, "--", name] if name.startswith("-") else [*command, name, *options]


def option(name: str, value: str) -> list[str]:
    """An option with a value, which may begin with a minus.

    >>> option("--group", "billing"), option("--group", "-x")
    (['--group', 'billing'], ['--group=-x'])
    """
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def command_line(command: Sequence[str], connection: Sequence[str] = ()) -> str:
    """A command for a shell, with the options of the connection at its end, or in front of what is no option.

    >>> command_line(["groups", "delete", "--", "-x"], ["-b", "kafka:9092"])
    'ottla groups delete -b kafka:9092 -- -x'
    """
    place = command.index("--") if "--" in command else len(command)
    return shlex.join(["ottla", *command[:place], *connection, *command[place:]])


def consumer_program(servers: str, group: str, topic: str) -> str:
    """The program of a consumer in a group.

    >>> print(consumer_program("localhost:9092", "billing", "orders"))
    from ottla import Consumer
    <BLANKLINE>
    consumer = Consumer(bootstrap_servers='localhost:9092', group_id='billing')
    consumer.subscribe(['orders'])
    for record in consumer:
        print(record)
    """
    return (
        "from ottla import Consumer\n\n"
        f"consumer = Consumer(bootstrap_servers={servers!r}, group_id={group!r})\n"
        f"consumer.subscribe([{topic!r}])\n"
        "for record in consumer:\n"
        "    print(record)"
    )
