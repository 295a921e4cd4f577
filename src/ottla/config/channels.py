"""The rows of the broker's table that each listener can have for itself: connections, TLS and SASL.

security.py has the others.
``listener.name.<listener>.<name>`` overrides ``<name>`` for one listener.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.fields import INT_MAX, Check, at_least, each_of, int32, int64, listing, one_of, password, string
from ottla.security.principal_rules import PrincipalRules

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that the broker has."""
GSSAPI = "GSSAPI"
"""Kafka's default mechanism, which the broker does not have."""
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_TOKENS = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
"""Kafka's class that accepts tokens without a signature."""
_STORE_TYPES = one_of("PEM", "PKCS12", "JKS")
_STORE_TYPE = "Without effect: the content of the file says whether it is PEM or PKCS12. JKS files must be converted."


def _are_rules(text: str) -> bool:
    try:
        PrincipalRules.parse(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)  # Without slots, as another base of BrokerConfig has them.
class ChannelConfig:
    """What protects the connections of a listener."""

    max_connection_creation_rate: int = int32(
        INT_MAX,
        "How many connections per second the broker accepts, or with listener.name.<listener>. one listener. More have "
        "to wait.",
        at_least(1),
        dynamic=True,
    )

    # TLS.
    ssl_cipher_suites: tuple[str, ...] = listing(
        (),
        "The cipher suites that clients may use, under Java's or OpenSSL's names. Empty means the good ones of the "
        "TLS library.",
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients have certificates: `required`, `requested` (if they have one, it must be valid) or `none`.",
        one_of("required", "requested", "none"),
        item=str.lower,
    )
    ssl_enabled_protocols: tuple[str, ...] = listing(
        ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that clients may use.",
        each_of("TLSv1.2", "TLSv1.3"),
        Check("at least one version", lambda versions: len(versions) > 0),
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "With `https`, this broker checks that the certificate of another broker matches its host name. Empty disables "
        "the check.",
        one_of("https", ""),
        item=str.lower,
    )
    ssl_key_password: str | None = password(None, "The password of the private key.")
    ssl_keystore_certificate_chain: str | None = password(
        None, "The broker's certificate and those that signed it, as PEM text instead of a file."
    )
    ssl_keystore_key: str | None = password(None, "The private key as PEM text instead of a file.")
    ssl_keystore_location: str | None = string(
        None,
        "The file with the broker's private key and certificates, PEM or PKCS12. A new content is used for new "
        "connections without a restart.",
        dynamic=True,
    )
    ssl_keystore_password: str | None = password(None, "The password of a PKCS12 file.")
    ssl_keystore_type: str = string("JKS", _STORE_TYPE, _STORE_TYPES, item=str.upper, dynamic=True)
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "Rules that make a user name from the distinguished name of a client's certificate: "
        "`RULE:pattern/replacement/L`, with L for lower case and U for upper case, separated by commas. `DEFAULT` is "
        "the whole distinguished name.",
        Check("rules such as RULE:^CN=(.*?),.*$/$1/L,DEFAULT", _are_rules),
    )
    ssl_truststore_certificates: str | None = password(
        None, "The certificates of the authorities to trust, as PEM text instead of a file.", dynamic=True
    )
    ssl_truststore_location: str | None = string(
        None,
        "The file with the certificates of the authorities that sign clients' and other brokers' certificates, PEM or "
        "PKCS12.",
        dynamic=True,
    )
    ssl_truststore_password: str | None = password(None, "The password of a PKCS12 file.")
    ssl_truststore_type: str = string("JKS", _STORE_TYPE, _STORE_TYPES, item=str.upper, dynamic=True)

    # SASL.
    connections_max_reauth_ms: int = int64(
        0, "Close a connection whose client does not authenticate again within this time. 0 means never.", at_least(0)
    )
    sasl_enabled_mechanisms: tuple[str, ...] = listing(
        (GSSAPI,),
        "The SASL mechanisms that clients may use. There is no GSSAPI (Kerberos) here, so a SASL listener needs a "
        "value.",
        each_of(*MECHANISMS, GSSAPI),
    )
    sasl_jaas_config: str | None = password(
        None,
        "The login of a mechanism: `listener.name.<listener>.<mechanism>.sasl.jaas.config` with the text of a JAAS "
        "file.",
    )
    sasl_server_callback_handler_class: str | None = string(
        None,
        "Kafka's name for how OAUTHBEARER checks tokens. By default, tokens must be signed. The unsecured handler, "
        "which is Kafka's default, accepts tokens without a signature: everybody can pretend to be any user.",
        one_of(
            f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
            UNSECURED_TOKENS,
        ),
    )
    sasl_server_max_receive_size: int = int32(
        524_288, "The size limit of a request before the client has authenticated.", at_least(1)
    )
    sasl_oauthbearer_clock_skew_seconds: int = int32(
        30, "How far the clock of the issuer of a token may differ.", at_least(0)
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = listing(
        None, "A token must be for one of these audiences."
    )
    sasl_oauthbearer_expected_issuer: str | None = string(None, "A token must be from this issuer.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(
        3_600_000, "How often to read the keys of the issuer again.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(
        10_000, "The longest wait before the keys are read again after a failure.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        100, "The first wait before the keys are read again after a failure.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None, "Where the keys of the issuer are: a URL with https, http or file."
    )
    sasl_oauthbearer_scope_claim_name: str = string("scope", "The claim of a token with its scopes.")
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim of a token with the name of the user.")
