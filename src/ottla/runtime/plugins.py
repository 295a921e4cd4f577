"""Classes in a configuration: given as objects, or as text with their import path."""

from __future__ import annotations

import importlib
from typing import Any

from ottla.errors import ConfigError


def load(value: Any, name: str) -> Any:
    """Return a configuration value, or the object that ``module.name`` or ``module:name`` refers to.

    >>> load("collections.OrderedDict", "example").__name__
    'OrderedDict'
    """
    if not isinstance(value, str):
        return value
    module_name, _, attribute = value.replace(":", ".").rpartition(".")
    if not module_name:
        raise ConfigError(f"{name}: {value!r} has no module. Write module.{value}.")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except AttributeError:
        raise ConfigError(f"{name}: the module {module_name} has no attribute {attribute}.") from None
    except Exception as error:
        # Importing runs other code, which may raise anything.
        raise ConfigError(f"{name}: {module_name} cannot be imported ({type(error).__name__}: {error}).") from error


def instance(value: Any, name: str) -> Any:
    """Like `load`, but create an instance of a class.

    >>> instance("collections.OrderedDict", "example")
    OrderedDict()
    """
    found = load(value, name)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        what = f"{found.__module__}.{found.__qualname__}"
        raise ConfigError(f"{name}: {what}() failed: {error}. Give an instance instead of the class.") from error
