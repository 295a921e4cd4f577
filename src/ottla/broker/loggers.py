"""The loggers of the broker as configs (KIP-412). Their levels can be read and changed while it runs.

A change is lost by a restart, as in Kafka. Other loggers of the program that a broker is embedded in stay its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla import errors
from ottla.config import Alteration, AlterOp, Change, ConfigEntry, ConfigSource, ConfigType
from ottla.suggestions import did_you_mean

ROOT = "ottla"
#: Kafka's levels. Python has no TRACE.
LEVELS = {
    "TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING,
    "ERROR": logging.ERROR, "FATAL": logging.CRITICAL,
}  # fmt: skip
_NAMES = {level: name for name, level in LEVELS.items()}


def loggers() -> dict[str, logging.Logger]:
    """Return the loggers of the broker by name."""
    known = logging.root.manager.loggerDict
    names = sorted(name for name in known if name == ROOT or name.startswith(f"{ROOT}."))
    return {name: logging.getLogger(name) for name in names if isinstance(known[name], logging.Logger)}


def describe_loggers(*, names: Sequence[str] | None) -> list[ConfigEntry]:
    """Return the loggers (or those named) with their levels."""
    return [
        ConfigEntry(
            name, _level(logger), ConfigSource.DYNAMIC_BROKER_LOGGER, False, False, (), ConfigType.STRING,
            f"The level of the logger {name}: {', '.join(LEVELS)}.",
        )
        for name, logger in loggers().items()
        if names is None or name in names
    ]  # fmt: skip


def _level(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for level, name in sorted(_NAMES.items()) if level >= effective), "FATAL")


def alter_loggers(change: Change, *, validate_only: bool) -> None:
    """Change levels, all or none; raise a Kafka error for a wrong change."""
    if not isinstance(change, Sequence):
        raise errors.InvalidRequest("AlterConfigs cannot change loggers (BROKER_LOGGER). Use IncrementalAlterConfigs.")
    known = loggers()
    levels = {each.name: _new_level(each, known) for each in change}
    for name, level in levels.items():
        if not validate_only:
            known[name].setLevel(level)


def _new_level(change: Alteration, known: dict[str, logging.Logger]) -> int:
    if change.name not in known:
        hint = did_you_mean(change.name, known) or f" The loggers are {', '.join(known)}."
        raise errors.InvalidConfig(f"The logger {change.name} does not exist.{hint}")
    if change.op == AlterOp.DELETE:
        return logging.NOTSET
    if change.op != AlterOp.SET:
        raise errors.InvalidRequest("A logger has one level. Use the operation SET or DELETE.")
    level = LEVELS.get(change.value or "")
    if level is None:
        raise errors.InvalidConfig(f"The level of {change.name} cannot be {change.value!r}. Use {', '.join(LEVELS)}.")
    return level
