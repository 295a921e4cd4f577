"""References to secrets in the values of a configuration: ``${env:NAME}`` and ``${file:path}``.

Only values that this program was given are resolved: a constructor's, a file's, a command's. What clients send to a
broker is never resolved, or an administrator of topics could read the broker's files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the contents of environment variables and files in place of references to them.

    >>> os.environ["OTTLA_DOC_SECRET"] = "s3cret"
    >>> resolved({"sasl.password": "${env:OTTLA_DOC_SECRET}", "client.id": "me"})
    {'sasl.password': 's3cret', 'client.id': 'me'}

    ``${file:path}`` is the content of a file without the newline at its end. ``${file:path:name}`` is a value in a
    properties file, as in Kafka. Raises ConfigError if there is no such variable, file or name.
    """
    return {name: resolved_value(name, value) for name, value in values.items()}


def resolved_value(name: str, value: Any) -> Any:
    """Return one value with its references resolved. ``name`` is the config, for errors."""
    if not isinstance(value, str) or "${" not in value:
        return value
    return _REFERENCE.sub(lambda found: _content(name, found), value)


def _content(name: str, found: re.Match[str]) -> str:
    kind, where = found[1], found[2]
    if kind == "env":
        content = os.environ.get(where)
        if content is None:
            raise ConfigError(f"{name} refers to {found[0]}, but the environment variable {where} is not set.")
        return content
    path, key = Path(where), None
    if not path.exists() and ":" in where:
        before, _, key = where.rpartition(":")
        path = Path(before)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{name} refers to {found[0]}, but {path} cannot be read: {why}.") from None
    return text.removesuffix("\n").removesuffix("\r") if key is None else _property(name, found[0], text, key)


def _property(name: str, reference: str, text: str, key: str) -> str:
    # Imported here because properties.py reads configurations, which resolve references.
    from ottla.config.properties import parse_properties

    try:
        return parse_properties(text)[key]
    except (KeyError, ConfigError):
        raise ConfigError(f"{name} refers to {reference}, but the file has no value named {key}.") from None
