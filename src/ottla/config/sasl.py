"""Rules about the SASL of a listener."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from ottla.config.channels import GSSAPI, MECHANISMS
from ottla.config.security import ListenerSecurity

_SCHEMES = ("https", "http", "file")
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def problems_of_sasl(security: ListenerSecurity) -> Iterator[str]:
    """Yield what is wrong with the SASL of a listener."""
    name, mechanisms = security.name, security.sasl_enabled_mechanisms
    if GSSAPI in mechanisms:
        yield (
            f"The listener {name} requires GSSAPI (Kerberos), which this broker does not have. Set "
            f"sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}."
        )
    if not mechanisms:
        some = ", ".join(MECHANISMS)
        yield f"The listener {name} has no SASL mechanism. Set sasl.enabled.mechanisms to some of {some}."
    for mechanism in mechanisms:
        # Raises an error that names the listener.
        _ = security.for_mechanism(mechanism).jaas
    if "OAUTHBEARER" in mechanisms:
        yield from _problems_of_tokens(security.for_mechanism("OAUTHBEARER"))


def _problems_of_tokens(security: ListenerSecurity) -> Iterator[str]:
    if security.accepts_unsecured_tokens:
        return
    url = security.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        yield (
            f"The listener {security.name} has OAUTHBEARER and no keys to check tokens with. Set "
            "sasl.oauthbearer.jwks.endpoint.url to the URL of the key set of the identity provider, or to a file: "
            "file:///path/to/jwks.json."
        )
    elif urlsplit(url).scheme not in _SCHEMES:
        yield f"sasl.oauthbearer.jwks.endpoint.url must be a URL that begins with {', '.join(_SCHEMES)}, not {url!r}."


def problems_between_brokers(security: ListenerSecurity, mechanism: str) -> Iterator[str]:
    """Yield why the brokers of a cluster cannot log in at each other on this listener."""
    name = security.name
    if mechanism not in _WITH_PASSWORD:
        yield (
            f"Brokers connect to each other on the listener {name}, which has SASL. Set "
            f"sasl.mechanism.inter.broker.protocol to one of {', '.join(_WITH_PASSWORD)}."
        )
        return
    if mechanism not in security.sasl_enabled_mechanisms:
        yield (
            f"sasl.mechanism.inter.broker.protocol is {mechanism}, but sasl.enabled.mechanisms of the listener {name} "
            "does not have it. Add it there."
        )
    jaas = security.for_mechanism(mechanism).jaas
    if not jaas.username or not jaas.password:
        prefix = f"listener.name.{name.lower()}.{mechanism.lower()}"
        yield (
            f"Brokers log in at each other with {mechanism}. Set username and password in {prefix}.sasl.jaas.config."
        )
