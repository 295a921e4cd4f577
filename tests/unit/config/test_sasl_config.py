"""The SASL of a listener: what the broker refuses to start with."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig
from ottla.config.channels import UNSECURED_TOKENS
from ottla.errors import ConfigError

LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}
URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({}, r"requires GSSAPI \(Kerberos\), which this broker does not have\. Set sasl\.enabled\.mechanisms"),
        ({"sasl.enabled.mechanisms": ""}, "has no SASL mechanism"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "must be a list of PLAIN"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, r"no keys to check tokens with\. Set sasl\.oauthbearer\.jwks"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", URL: "ftp://x/y"}, "a URL that begins with https, http, file"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'x required user_a="hush"',
            },
            "sasl.jaas.config of the listener SASL_PLAINTEXT is not valid: it must be one entry",
        ),
    ],
)
def test_a_mistake_is_named(configs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        BrokerConfig.parse({**LISTENER, **configs})
    assert "hush" not in str(caught.value)


def test_tokens_without_a_signature_must_be_asked_for_by_name() -> None:
    values = {**LISTENER, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    prefix = "listener.name.sasl_plaintext.oauthbearer"
    config = BrokerConfig.parse({**values, f"{prefix}.sasl.server.callback.handler.class": UNSECURED_TOKENS})
    assert config.listener("SASL_PLAINTEXT").for_mechanism("OAUTHBEARER").accepts_unsecured_tokens
    assert not BrokerConfig.parse({**values, URL: "file:///keys"}).listener("SASL_PLAINTEXT").accepts_unsecured_tokens


def test_users_of_plain_come_from_the_jaas_config_of_the_listener() -> None:
    config = BrokerConfig.parse(
        {
            **LISTENER,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'x required user_alice="a" user_bob="b";',
        }
    )
    assert config.listener("SASL_PLAINTEXT").for_mechanism("PLAIN").jaas.users == {"alice": "a", "bob": "b"}
