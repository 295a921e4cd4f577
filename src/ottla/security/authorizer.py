"""The decision: may a principal do something? Rules are found by the name and the prefixes of the resource.

The order is Kafka's: super users, then rules that deny, then rules that allow, then the default. Without any rule for a
resource ``allow.everyone.if.no.acl.found`` decides. As soon as there is one, whoever no rule allows is denied.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla.security.acls import (
    EVERYONE,
    IMPLIED,
    WILDCARD,
    AclBinding,
    AclFilter,
    Network,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    address_of,
    network_of,
    resource_text,
)
from ottla.security.principals import Principal

#: The most decisions that are kept. More than this many different questions start anew.
CACHED = 50_000
LONGEST_NAME = 300
"""Decisions about longer names are not remembered, and logs show only so much of a name: clients choose names."""


class Reason(Enum):
    """What decided, if no rule did."""

    SUPER_USER = "it is one of super.users"
    RULE = "of a rule"
    NO_RULE_MATCHES = "no rule allows it"
    NO_RULES_ALLOWED = "the resource has no rules and allow.everyone.if.no.acl.found is true"
    NO_RULES_DENIED = "the resource has no rules"


def shown(name: str) -> str:
    r"""Return a name as a log line may have it: not too long, and without control characters.

    >>> shown("orders"), shown("a\nb")
    ('orders', "'a\\nb'")
    """
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    return repr(name[:LONGEST_NAME]) + ("…" if len(name) > LONGEST_NAME else "")


class Decision(NamedTuple):
    """An answer and what decided it."""

    allowed: bool
    reason: Reason
    rule: AclBinding | None = None

    def sentence(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> str:
        """Return the decision as a sentence.

        >>> no = Decision(False, Reason.NO_RULES_DENIED)
        >>> no.sentence(Principal("User", "etl"), "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, "orders")
        'User:etl may not Write on topic orders from 10.0.0.1: the resource has no rules.'
        """
        kind = resource_type.name.lower()
        resource = f"any {kind}" if name is None else resource_text(resource_type, shown(name))
        because = self.reason.value if self.rule is None else f'the rule "{self.rule}" decides'
        verb = "may" if self.allowed else "may not"
        return f"{shown(str(principal))} {verb} {operation.title} on {resource} from {host}: {because}."


class _Rule(NamedTuple):
    """A rule with what it takes to apply it fast."""

    binding: AclBinding
    operations: frozenset[Operation] | None
    """The operations it decides; None for all."""
    everywhere: bool
    network: Network | None

    def applies(self, host: str, operation: Operation) -> bool:
        if self.operations is not None and operation not in self.operations:
            return False
        if self.everywhere or self.binding.host == host:
            return True
        if self.network is None or (address := address_of(host)) is None:
            return False
        return address in self.network


#: A question: who, from where, what, and with which resource.
Key: TypeAlias = tuple[Principal, str, Operation, ResourceType, str | None]
#: The rules of one pattern, by principal.
_Rules = dict[str, list[_Rule]]


class _Patterns:
    """The rules for one type of resource, by the name of the pattern."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self._lengths: list[int] = []
        self._of_length: dict[int, int] = {}

    def add(self, binding: AclBinding) -> None:
        prefixed = binding.pattern_type == PatternType.PREFIXED
        patterns = self.prefixed if prefixed else self.literal
        name = binding.resource_name
        if name not in patterns:
            patterns[name] = {}
            if prefixed:
                self._count(len(name), 1)
        patterns[name].setdefault(binding.principal, []).append(_rule(binding))

    def remove(self, binding: AclBinding) -> None:
        prefixed = binding.pattern_type == PatternType.PREFIXED
        patterns = self.prefixed if prefixed else self.literal
        by_principal = patterns[binding.resource_name]
        kept = [each for each in by_principal[binding.principal] if each.binding != binding]
        if kept:
            by_principal[binding.principal] = kept
            return
        del by_principal[binding.principal]
        if not by_principal:
            del patterns[binding.resource_name]
            if prefixed:
                self._count(len(binding.resource_name), -1)

    def _count(self, length: int, change: int) -> None:
        number = self._of_length.get(length, 0)
        if number == 0:
            insort(self._lengths, length)
        self._of_length[length] = number + change
        if number + change == 0:
            del self._of_length[length]
            self._lengths.remove(length)

    def matching(self, name: str) -> Iterator[_Rules]:
        """Yield the rules of each pattern that has this name: the closest first."""
        if (found := self.literal.get(name)) is not None:
            yield found
        for length in reversed(self._lengths):
            if length <= len(name) and (found := self.prefixed.get(name[:length])) is not None:
                yield found
        if name != WILDCARD and (found := self.literal.get(WILDCARD)) is not None:
            yield found


def _rule(binding: AclBinding) -> _Rule:
    operations: frozenset[Operation] | None = None
    if binding.operation != Operation.ALL:
        implied = IMPLIED.get(binding.operation, frozenset()) if binding.permission == Permission.ALLOW else frozenset()
        operations = implied | {binding.operation}
    everywhere = binding.host == WILDCARD
    return _Rule(binding, operations, everywhere, None if everywhere else network_of(binding.host))


class Acls:
    """A set of rules, with an index for decisions. Whoever remembers decisions must `watch` it."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._bindings: dict[AclBinding, None] = {}
        self._by_type: dict[ResourceType, _Patterns] = {}
        self._watchers: list[Callable[[], None]] = []
        for binding in bindings:
            self.add(binding)

    def add(self, binding: AclBinding) -> None:
        """Add a rule; one that is there already stays as it is."""
        if binding not in self._bindings:
            self._bindings[binding] = None
            self._by_type.setdefault(binding.resource_type, _Patterns()).add(binding)
            self._changed()

    def remove(self, binding: AclBinding) -> None:
        """Remove a rule, if it is there."""
        if binding in self._bindings:
            del self._bindings[binding]
            self._by_type[binding.resource_type].remove(binding)
            self._changed()

    def clear(self) -> None:
        """Remove all rules."""
        self._bindings.clear()
        self._by_type.clear()
        self._changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this after every change, before anyone can ask again."""
        self._watchers.append(changed)

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()

    def matching(self, acl_filter: AclFilter) -> list[AclBinding]:
        """Return the rules that a filter selects, in the order in which they were added."""
        return [binding for binding in self._bindings if acl_filter.matches(binding)]

    def of(self, resource_type: ResourceType) -> _Patterns | None:
        """Return the rules for one type of resource."""
        return self._by_type.get(resource_type)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._bindings)

    def __contains__(self, binding: object) -> bool:
        return binding in self._bindings

    def __len__(self) -> int:
        return len(self._bindings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self._bindings == other._bindings

    __hash__ = None  # type: ignore[assignment]


class Authorizer:
    """Decides by rules, super users and the default.

    >>> from ottla.security.acls import AclBinding
    >>> rules = Acls([AclBinding(ResourceType.TOPIC, "orders", principal="User:etl", operation=Operation.READ)])
    >>> decision = Authorizer(rules).decide(
    ...     Principal("User", "etl"), "10.0.0.1", Operation.DESCRIBE, ResourceType.TOPIC, "orders"
    ... )
    >>> decision.allowed, str(decision.rule)
    (True, 'allow User:etl Read on topic orders from every host')
    """

    def __init__(self, acls: Acls, *, super_users: Iterable[str] = (), allow_without_rules: bool = False) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._allow_without_rules = allow_without_rules
        self.remembered: dict[Key, Decision] = {}
        """Decisions that were made since the rules changed last. To look here first saves a call."""
        acls.watch(self.remembered.clear)

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> Decision:
        """Decide about a resource; with None as its name, whether the operation is allowed on any of this type."""
        key = (principal, host, operation, resource_type, name)
        decision = self.remembered.get(key)
        if decision is None:
            if name is None:
                decision = self._decide_for_any(principal, host, operation, resource_type)
            else:
                decision = self._decide(str(principal), host, operation, resource_type, name)
            if name is None or len(name) <= LONGEST_NAME:
                if len(self.remembered) >= CACHED:
                    self.remembered.clear()
                self.remembered[key] = decision
        return decision

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        if principal in self._super_users:
            return Decision(True, Reason.SUPER_USER)
        patterns = self.acls.of(resource_type)
        has_rules, allowed = False, None
        for by_principal in () if patterns is None else patterns.matching(name):
            has_rules = True
            for who in (principal, EVERYONE):
                for rule in by_principal.get(who, ()):
                    if rule.applies(host, operation):
                        if rule.binding.permission == Permission.DENY:
                            return Decision(False, Reason.RULE, rule.binding)
                        allowed = allowed or rule.binding
        if allowed is not None:
            return Decision(True, Reason.RULE, allowed)
        if has_rules:
            return Decision(False, Reason.NO_RULE_MATCHES)
        if self._allow_without_rules:
            return Decision(True, Reason.NO_RULES_ALLOWED)
        return Decision(False, Reason.NO_RULES_DENIED)

    def _decide_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Decision:
        """Decide whether there may be a resource that allows it: one that is allowed by a rule, and not denied by all.

        Like Kafka, the answer for the name "hardcode" stands for resources that no rule names.
        """
        decision = self._decide(str(principal), host, operation, resource_type, "hardcode")
        if decision.allowed:
            return decision
        allowing: list[AclBinding] = []
        denied: set[tuple[PatternType, str]] = set()
        patterns = self.acls.of(resource_type)
        for rule in () if patterns is None else _all_rules(patterns, (str(principal), EVERYONE)):
            binding = rule.binding
            if binding.operation not in (operation, Operation.ALL) or not rule.applies(host, operation):
                continue
            if binding.permission == Permission.ALLOW:
                allowing.append(binding)
            elif (binding.pattern_type, binding.resource_name) == (PatternType.LITERAL, WILDCARD):
                return Decision(False, Reason.RULE, binding)
            else:
                denied.add((binding.pattern_type, binding.resource_name))
        for binding in allowing:
            if not _is_denied(binding, denied):
                return Decision(True, Reason.RULE, binding)
        return decision if decision.rule is None else Decision(False, Reason.NO_RULE_MATCHES)


def _all_rules(patterns: _Patterns, principals: tuple[str, ...]) -> Iterator[_Rule]:
    for by_name in (patterns.literal, patterns.prefixed):
        for by_principal in by_name.values():
            for principal in principals:
                yield from by_principal.get(principal, ())


def _is_denied(binding: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether rules that deny cover all that a rule allows."""
    name = binding.resource_name
    if binding.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
