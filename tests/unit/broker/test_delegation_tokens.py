"""Delegation tokens are disabled: their APIs are served, check in Kafka's order, and say so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from authorities import Authority
from ottla import errors
from ottla.clients.cluster.cluster import Cluster
from ottla.config.client import ClientConfig
from ottla.protocol.apis import ApiKey
from ottla.security.acls import AclBinding, Operation, ResourceType
from ottla.security.authorizer import Acls, Authorizer
from unit.broker.sasl_wire import SaslBroker, log_in, sasl_broker
from unit.broker.test_every_version import TOKENS as REQUESTS
from unit.broker.wire import Wire

#: As Kafka 4.2 advertises them.
VERSIONS = {
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
}
EVERY = [(key, version) for key, (first, last) in VERSIONS.items() for version in range(first, last + 1)]
EACH = pytest.mark.parametrize(("key", "version"), EVERY, ids=[f"{key.name.lower()}-v{v}" for key, v in EVERY])
ANOTHER = {"owner_principal_type": "User", "owner_principal_name": "carol"}
GROUP_AS_RENEWER = {"renewers": [{"principal_type": "Group", "principal_name": "ops"}]}


@pytest.fixture(scope="module")
def sasl() -> Iterator[SaslBroker]:
    with sasl_broker() as broker:
        yield broker


@pytest.fixture
def bob(sasl: SaslBroker) -> Iterator[Wire]:
    with Wire(sasl.sasl) as wire:
        log_in(wire, "PLAIN", "bob", "b")
        yield wire


def test_the_apis_are_advertised(sasl: SaslBroker) -> None:
    with Wire(sasl.plain) as wire:
        served = {
            api.api_key: (api.min_version, api.max_version) for api in wire.call(ApiKey.API_VERSIONS, 0, {}).api_keys
        }
    assert {key: served.get(key) for key in VERSIONS} == VERSIONS


@EACH
def test_a_client_without_a_login_may_not_ask(sasl: SaslBroker, key: ApiKey, version: int) -> None:
    with Wire(sasl.plain) as wire:
        answer = wire.call(key, version, REQUESTS[key])
    assert answer.error_code == errors.DelegationTokenRequestNotAllowed.code
    assert getattr(answer, "expiry_timestamp", -1) == -1


@EACH
def test_a_client_that_has_logged_in_is_told_that_they_are_disabled(bob: Wire, key: ApiKey, version: int) -> None:
    answer = bob.call(key, version, REQUESTS[key])
    assert answer.error_code == errors.DelegationTokenAuthDisabled.code
    assert getattr(answer, "expiry_timestamp", 0) == 0
    if key == ApiKey.CREATE_DELEGATION_TOKEN:
        assert (answer.principal_type, answer.principal_name, answer.token_id) == ("User", "bob", "")


def test_the_checks_come_in_kafkas_order(sasl: SaslBroker, bob: Wire) -> None:
    def create(wire: Wire, **changes: Any) -> Any:
        request = REQUESTS[ApiKey.CREATE_DELEGATION_TOKEN] | changes
        return wire.call(ApiKey.CREATE_DELEGATION_TOKEN, 3, request)

    node = sasl.broker._running().node
    refused = errors.DelegationTokenAuthorizationFailed.code
    try:
        node.authorizer = Authorizer(Acls(()))
        with Wire(sasl.plain) as plain:
            assert create(plain, **ANOTHER).error_code == errors.DelegationTokenRequestNotAllowed.code
        for_carol = create(bob, **ANOTHER, **GROUP_AS_RENEWER)
        assert for_carol.error_code == refused
        owner_and_requester = (for_carol.principal_name, for_carol.token_requester_principal_name)
        assert owner_and_requester == ("carol", "bob")
        # For oneself no permission is needed.
        assert create(bob).error_code == errors.DelegationTokenAuthDisabled.code
        own_name = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        assert create(bob, **own_name).error_code == errors.DelegationTokenAuthDisabled.code
        assert create(bob, **GROUP_AS_RENEWER).error_code == errors.InvalidPrincipalType.code
        carols = AclBinding(ResourceType.USER, "User:carol", operation=Operation.CREATE_TOKENS)
        node.authorizer = Authorizer(Acls([carols]))
        assert create(bob, **ANOTHER).error_code == errors.DelegationTokenAuthDisabled.code
        assert create(bob, **ANOTHER | {"owner_principal_name": "dave"}).error_code == refused
    finally:
        node.authorizer = None


def test_tls_needs_a_certificate_of_the_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.sign("broker")),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "requested",
    }
    with ottla.Broker(config=config) as broker:
        found = {}
        for certificate in (None, str(authority.sign("client"))):
            access = {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate), "ssl_certfile": certificate}
            given = {name: value for name, value in access.items() if value is not None}
            found[certificate is None] = _described(broker.bootstrap_servers, given)
    assert found == {
        True: errors.DelegationTokenRequestNotAllowed.code,
        False: errors.DelegationTokenAuthDisabled.code,
    }


def _described(servers: str, access: dict[str, Any]) -> int:
    async def main() -> int:
        cluster = Cluster.of(ClientConfig.given({"bootstrap.servers": servers}, access))
        try:
            answer = await cluster.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})
            return int(answer.error_code)
        finally:
            await cluster.close()

    return asyncio.run(main())
