"""Which requests fail, and how. Values only: the injector carries them out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from ottla.errors import KafkaError, OttlaError, error_class, error_name
from ottla.protocol.apis import ApiKey
from ottla.suggestions import did_you_mean

FAIL, DELAY, CUT, DROP, THROTTLE = "fail", "delay", "cut", "drop", "throttle"
KINDS = (FAIL, DELAY, CUT, DROP, THROTTLE)

_APIS = {key.name.replace("_", "").lower(): key for key in ApiKey}
_NAMES = {key: "".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
_HIGHEST_CODE = 200
_ERRORS = {
    error_name(code): error_class(code) for code in range(-1, _HIGHEST_CODE) if code and error_class(code).code == code
}


class WrongFault(OttlaError, ValueError):
    """A fault that cannot be: the message says what is wrong."""


def api_of(name: str) -> ApiKey:
    """Return the API of a name as in Kafka's documentation.

    >>> api_of("FindCoordinator"), api_of("produce")
    (<ApiKey.FIND_COORDINATOR: 10>, <ApiKey.PRODUCE: 0>)
    """
    found = _APIS.get(name.replace("_", "").replace(" ", "").lower())
    if found is None:
        raise WrongFault(f"there is no API {name!r}.{did_you_mean(name, _NAMES.values())}")
    return found


def error_of(given: object) -> type[KafkaError]:
    """Return the error of Kafka's name, such as ``NOT_LEADER_OR_FOLLOWER``, its code, or a class of `ottla.errors`.

    >>> error_of("not_leader_or_follower") is error_of(6)
    True
    """
    kind = type(given) if isinstance(given, KafkaError) else given
    if isinstance(kind, type) and issubclass(kind, KafkaError) and issubclass(kind, _ERRORS[kind.name]):
        return _ERRORS[kind.name]
    if isinstance(given, int) and not isinstance(given, bool):
        return _of_code(given)
    if not isinstance(given, str):
        raise WrongFault(f"an error is a name such as NOT_LEADER_OR_FOLLOWER, or a code such as 6, not {given!r}")
    found = _ERRORS.get(given.upper())
    if found is None:
        raise WrongFault(f"Kafka has no error {given!r}.{did_you_mean(given.upper(), _ERRORS)}")
    return found


def _of_code(code: int) -> type[KafkaError]:
    if code == 0:
        raise WrongFault("the code 0 means that there is no error")
    if error_name(code) not in _ERRORS:
        own = " Codes below -1 are those of librdkafka's own errors, which no broker sends." if code < -1 else ""
        raise WrongFault(f"Kafka has no error with the code {code}.{own}")
    return error_class(code)


class Request(Protocol):
    """What rules look at. The methods are called only if it depends on them."""

    api_key: int
    client_id: str | None

    def is_of_follower(self) -> bool:
        """Whether another broker copies records with it. Only rules with a client id apply to that."""
        ...

    def topics(self) -> Collection[str]:
        """The names of the topics that it is about."""
        ...

    def can_fail(self, error: type[KafkaError]) -> bool:
        """Whether Kafka could answer with this error."""
        ...


@dataclass(slots=True)
class Rule:
    """What happens to the next matching requests."""

    kind: str
    api: ApiKey | None = None
    error: type[KafkaError] | None = None
    times: int | None = None
    """How many requests it applies to; None for all."""
    client_id: str | None = None
    topic: str | None = None
    milliseconds: int = 0
    after: bool = False
    """The request is carried out first, and only the response is lost."""
    id: int = 0
    hits: int = field(default=0, compare=False)

    FIELDS: ClassVar[tuple[str, ...]] = (
        "kind", "api", "error", "times", "client_id", "topic", "milliseconds", "after",
    )  # fmt: skip

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Rule:
        """Check values from Python or JSON. `WrongFault` says what is wrong."""
        for name in values:
            if name not in cls.FIELDS:
                raise WrongFault(f"a fault has no {name!r}.{did_you_mean(name, cls.FIELDS)}")
        kind = values.get("kind")
        if kind not in KINDS:
            raise WrongFault(f"there is no fault {kind!r}: use one of {', '.join(KINDS)}")
        api, error = values.get("api"), values.get("error")
        rule = cls(
            kind,
            None if api is None else api_of(text(api, "api")),
            None if error is None else error_of(error),
            None if values.get("times") is None else number(values["times"], "times", 1),
            None if values.get("client_id") is None else text(values["client_id"], "client_id"),
            None if values.get("topic") is None else text(values["topic"], "topic"),
            0 if values.get("milliseconds") is None else number(values["milliseconds"], "milliseconds", 0),
            _flag(values.get("after"), "after"),
        )
        rule._check()
        return rule

    def _check(self) -> None:
        if self.kind == FAIL and self.error is None:
            raise WrongFault('fail needs an error, such as fail("Produce", "NOT_LEADER_OR_FOLLOWER")')
        if self.kind == FAIL and self.api is None:
            raise WrongFault('fail needs an API, such as fail("Produce", "NOT_LEADER_OR_FOLLOWER")')
        if self.kind != FAIL and self.error is not None:
            raise WrongFault(f"{self.kind} has no error: only fail has one")
        if self.kind in (DELAY, THROTTLE) and not self.milliseconds:
            raise WrongFault(f"{self.kind} needs a time above 0")
        if self.kind not in (DELAY, THROTTLE) and self.milliseconds:
            raise WrongFault(f"{self.kind} has no milliseconds: only delay and throttle have them")
        if self.kind == THROTTLE and self.after:
            raise WrongFault("throttle has no after: the request is always carried out")

    def shown(self) -> dict[str, Any]:
        """Return the rule as JSON values."""
        values: dict[str, Any] = {"id": self.id, "kind": self.kind, "hits": self.hits}
        if self.api is not None:
            values["api"] = _NAMES[self.api]
        if self.error is not None:
            values["error"] = self.error.name
        for name in ("times", "client_id", "topic"):
            if getattr(self, name) is not None:
                values[name] = getattr(self, name)
        if self.milliseconds:
            values["milliseconds"] = self.milliseconds
        if self.after:
            values["after"] = True
        return values

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def matches(self, asked: Request) -> bool:
        """Whether it applies to a request."""
        return (
            not self.is_used_up
            and (self.api is None or self.api == asked.api_key)
            and (not asked.is_of_follower() if self.client_id is None else self.client_id == asked.client_id)
            and (self.topic is None or self.topic in asked.topics())
            and (self.error is None or asked.can_fail(self.error))
        )


class Rules:
    """The present rules, oldest first."""

    def __init__(self) -> None:
        self.all: list[Rule] = []
        self._last_id = 0

    def add(self, rule: Rule) -> Rule:
        self._last_id += 1
        rule.id = self._last_id
        self.all.append(rule)
        return rule

    def remove(self, rule_id: int) -> Rule | None:
        """Remove a rule and return it; None if it is not there."""
        found = next((rule for rule in self.all if rule.id == rule_id), None)
        if found is not None:
            self.all.remove(found)
        return found

    def take(self, asked: Request) -> Rule | None:
        """Return the first rule for a request, and count it."""
        for rule in self.all:
            if rule.matches(asked):
                rule.hits += 1
                return rule
        return None


def text(given: object, what: str) -> str:
    """Return text from Python or JSON, or raise `WrongFault`."""
    if not isinstance(given, str):
        raise WrongFault(f"{what} must be text, not {given!r}")
    return given


def _flag(given: object, what: str) -> bool:
    if given is not None and not isinstance(given, bool):
        raise WrongFault(f"{what} must be true or false, not {given!r}")
    return bool(given)


def number(given: object, what: str, least: int) -> int:
    """Return a whole number from Python or JSON, or raise `WrongFault`."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise WrongFault(f"{what} must be a whole number of at least {least}, not {given!r}")
    return given
