"""Configurations that lock everybody out: nobody can log in, or nobody may do anything. The broker warns of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.config.security import ListenerSecurity

if TYPE_CHECKING:
    from ottla.broker.node import Node


def locked_out(node: Node) -> Iterator[str]:
    """Yield a sentence for each reason why no client can do anything, with the way out."""
    config, metadata = node.config, node.metadata
    listeners = [config.listener(listener.name) for listener in config.listeners]
    if not config.is_clustered and not len(metadata.users) and all(map(_needs_users, listeners)):
        yield (
            "nobody can log in, because there are no users. Stop the broker, and add the first one: ottla users add "
            f"admin --data-dir {shlex.quote(config.data_dirs[0])}"
        )
    if node.authorizer is None or config.super_users or config.allow_everyone_if_no_acl_found or len(metadata.acls):
        return
    yield (
        "nobody may do anything, because there are neither ACLs nor super.users. Name your administrator, such as "
        "super.users=User:admin, and start again"
    )


def _needs_users(security: ListenerSecurity) -> bool:
    """Whether clients of a listener must be users of the metadata."""
    mechanisms = security.sasl_enabled_mechanisms
    if not security.has_sasl or "OAUTHBEARER" in mechanisms:
        return False
    return "PLAIN" not in mechanisms or not security.for_mechanism("PLAIN").jaas.users
