"""Classes that a configuration names: given as they are, or as the text that says where they can be imported from."""

from __future__ import annotations

import importlib
from typing import Any

from ottla.errors import ConfigError


def load(value: Any, name: str) -> Any:
    """What a configuration value stands for: itself, or what the text ``module.name`` or ``module:name`` says.

    >>> load("collections.OrderedDict", "example").__name__
    'OrderedDict'
    """
    if not isinstance(value, str):
        return value
    module_name, _, attribute = value.replace(":", ".").rpartition(".")
    if not module_name:
        raise ConfigError(f"{name}: {value!r} says no module: write module.{value}.")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except AttributeError:
        raise ConfigError(f"{name}: the module {module_name} has no {attribute}.") from None
    except Exception as error:
        # Importing runs somebody's code, which may raise anything.
        raise ConfigError(f"{name}: {module_name} cannot be imported ({type(error).__name__}: {error}).") from error


def instance(value: Any, name: str) -> Any:
    """The same, and a class is called to make an instance of it.

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
        raise ConfigError(f"{name}: {what} cannot be made without arguments ({error}); give an instance.") from error
