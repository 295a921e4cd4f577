"""Configurations that leave a door open: they are allowed, but the broker warns when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.config.security import ListenerSecurity


def open_doors(config: BrokerConfig) -> list[str]:
    """Return a sentence for each door that a configuration leaves open.

    >>> open_doors(BrokerConfig.parse({"listeners": "PLAINTEXT://:9092"}))
    []
    """
    listeners = [(listener, config.listener(listener.name)) for listener in config.listeners]
    is_secured = bool(config.authorizer_class_name) or any(each.protocol != "PLAINTEXT" for _, each in listeners)
    return [*_listeners(config, listeners), *_acls(config)] if is_secured else []


def _listeners(config: BrokerConfig, listeners: list[tuple[Listener, ListenerSecurity]]) -> Iterator[str]:
    for listener, security in listeners:
        if security.protocol == "SASL_PLAINTEXT" and not _is_loopback(listener.host):
            yield (
                f"the listener {listener} has SASL without TLS: others in the network can read passwords and records. "
                "Use SASL_SSL"
            )
        if _is_anonymous(security) and config.authorizer_class_name:
            yield (
                f"clients of the listener {listener} do not authenticate: ACLs see all of them as User:ANONYMOUS. Use "
                "SASL, or ssl.client.auth=required"
            )
        elif security.protocol == "PLAINTEXT" and not _is_loopback(listener.host):
            yield (
                f"the listener {listener} has neither TLS nor authentication, although others have. Bind it to "
                "127.0.0.1, or give it another protocol"
            )
    between = config.listener(config.inter_broker_listener)
    if config.is_clustered and between.has_tls and not between.ssl_endpoint_identification_algorithm:
        yield (
            "brokers do not check the host names in each other's certificates. Set "
            "ssl.endpoint.identification.algorithm=https"
        )


def _acls(config: BrokerConfig) -> Iterator[str]:
    if config.authorizer_class_name and config.allow_everyone_if_no_acl_found:
        yield (
            "allow.everyone.if.no.acl.found=true: everybody may use each resource that no ACL names. Set it to false "
            "when all ACLs are there"
        )
    if not config.authorizer_class_name and config.super_users:
        yield "super.users has no effect without authorizer.class.name: every client may do everything"


def _is_anonymous(security: ListenerSecurity) -> bool:
    """Whether clients may connect without proof of who they are."""
    return not security.has_sasl and not (security.has_tls and security.ssl_client_auth == "required")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
