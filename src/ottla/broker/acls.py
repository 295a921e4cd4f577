"""What the handlers of ACLs share."""

from __future__ import annotations

from ottla import errors
from ottla.protocol.codec import Struct
from ottla.security.acls import AclFilter


def filter_of(asked: Struct) -> AclFilter:
    """Return the filter of DescribeAcls, or one of DeleteAcls."""
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def no_authorizer() -> errors.SecurityDisabled:
    """Return the error of a broker without ACLs. Kafka's tools expect exactly this one."""
    return errors.SecurityDisabled(
        "No Authorizer is configured on the broker: set "
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer in its config, and name the "
        "users that may do everything in super.users (User:admin)."
    )
