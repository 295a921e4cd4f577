"""Compare what brokers refuse: every request of test_permissions.py on ottla and on Apache Kafka, in every version.

``python -m tests.authorizer.requests_kafka`` needs Java 17 or newer and Maven, which downloads Kafka's jars once. Each
request is sent without any rule, with rules for the half of its parts, and with all rules that the table names.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.peer import HOST, free_port

import ottla
from ottla.broker.handlers import HANDLERS
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.security.acls import AclBinding, AclFilter, PatternType
from ottla.security.authorizer import Acls, Authorizer
from ottla.security.permissions import PERMISSIONS

sys.path.append(str(Path(__file__).parents[1]))
from unit.broker.permission_requests import requests
from unit.broker.test_permissions import MINE, REFUSED, SERVED, THEIRS, codes_in, parts_of, rule, rules_for
from unit.broker.wire import Wire

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret";'
)
SETTLE_SECONDS = 10
LATE_SECONDS = 0.5
#: Kafka fails to make these responses, and sends none.
BROKEN = {(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "no rules")}
Answer = tuple[Any, ...]


class Secured(ApacheKafka):
    """Kafka with a listener for clients without a login, and others for the administrator and the controller."""

    def _properties(self) -> dict[str, str]:
        self.admin_port = getattr(self, "admin_port", 0) or free_port()
        jaas = {f"listener.name.{each}.plain.sasl.jaas.config": PLAIN for each in ("admin", "controller")}
        return {
            **super()._properties(),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},ADMIN://{HOST}:{self.admin_port},"
            f"CONTROLLER://{HOST}:{self.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "ADMIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            **jaas,
        }

    def admin(self) -> ottla.Admin:
        return ottla.Admin(
            bootstrap_servers=f"{HOST}:{self.admin_port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="admin",
            sasl_password="secret",
        )


class Side:
    """A broker: send a request as a client that has only some rules."""

    def __init__(self, address: str, admin: ottla.Admin, use: Callable[[list[AclBinding]], None]) -> None:
        self.address, self.admin, self.use = address, admin, use
        self.ids: dict[str, UUID] = {}
        for name in (MINE, THEIRS):
            self.create(name)

    def create(self, name: str) -> None:
        try:
            self.ids[name] = self.admin.create_topics(name)[name].topic_id
        except KafkaError as error:
            if error.name != "TOPIC_ALREADY_EXISTS":
                raise

    def ask(self, key: int, version: int, rules: list[AclBinding], *names: str) -> Answer:
        fresh = [f"{name}-{HANDLERS[key].name}-{version}-{len(rules)}-{len(names)}" for name in names]
        if key == ApiKey.DELETE_TOPICS:
            for name in fresh:
                self.create(name)
        message = requests(names, self.ids, fresh=fresh)[key]
        self.use(rules)
        with Wire(self.address, timeout=5) as wire:
            try:
                answer = wire.call(key, version, message)
            except (ConnectionError, TimeoutError) as error:
                return (str(error),)
        parts = [
            sorted(code for part in parts_of(answer, name, self.ids[name]) for code in codes_in(part) & REFUSED)
            for name in names
        ]
        return sorted(codes_in(answer) & REFUSED), *({*each} for each in parts)


def kafka_rules(admin: ottla.Admin) -> Callable[[list[AclBinding]], None]:
    """Replace the rules of Kafka, and wait until they are there."""

    def use(rules: list[AclBinding]) -> None:
        wanted = set(rules)
        if set(admin.describe_acls()) == wanted:
            return
        admin.delete_acls(AclFilter())
        if wanted:
            admin.create_acls(wanted)
        deadline = time.monotonic() + SETTLE_SECONDS
        while set(admin.describe_acls()) != wanted:
            if time.monotonic() > deadline:
                raise AssertionError("Kafka's rules did not change")
            time.sleep(0.02)

    return use


def cases(key: int) -> Iterable[tuple[str, list[AclBinding], tuple[str, ...]]]:
    yield "no rules", [], (MINE,)
    partly = [rule(need, MINE, PatternType.PREFIXED) for need in PERMISSIONS[HANDLERS[key].name]]
    yield "rules for one part", list(dict.fromkeys(partly)), (MINE, THEIRS)
    yield "all rules", list(dict.fromkeys(rules_for(key))), (MINE,)


def main() -> int:
    logging.getLogger("ottla.security").setLevel(logging.ERROR)
    asked, different = 0, []
    with ExitStack() as stack:
        kafka = stack.enter_context(Secured())
        broker = stack.enter_context(ottla.Broker())
        node = broker._running().node
        kafka_admin = stack.enter_context(kafka.admin())
        our_admin = stack.enter_context(ottla.Admin(bootstrap_servers=broker.bootstrap_servers))
        theirs = Side(kafka.bootstrap_servers, kafka_admin, kafka_rules(kafka_admin))

        def use(rules: list[AclBinding]) -> None:
            node.authorizer = Authorizer(Acls(rules))

        ours = Side(broker.bootstrap_servers, our_admin, use)
        with Wire(kafka.bootstrap_servers) as wire:
            served = {each.api_key: each for each in wire.call(ApiKey.API_VERSIONS, 0, {}).api_keys}
        versions: dict[int, list[int]] = {}
        for key, version in SERVED:
            if key in served and served[key].min_version <= version <= served[key].max_version:
                versions.setdefault(key, []).append(version)
        for key, known in versions.items():
            for what, rules, names in cases(key):
                for version in known:
                    node.authorizer = None
                    mine, other = ours.ask(key, version, rules, *names), theirs.ask(key, version, rules, *names)
                    asked += 1
                    # The controller may learn of rules a moment after the broker, which has told us of them.
                    deadline = time.monotonic() + LATE_SECONDS
                    while mine != other and time.monotonic() < deadline:
                        other = theirs.ask(key, version, rules, *names)
                    if mine != other and (key, what) not in BROKEN:
                        different.append(f"{HANDLERS[key].name} v{version}, {what}: ottla {mine}, Kafka {other}")
        node.authorizer = None
    for each in different:
        print(each)
    print(f"{asked:,} requests of {len(versions)} APIs: {len(different):,} are refused in another way than by Kafka")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
