"""The security of each listener, and that no secret is shown."""

from __future__ import annotations

import pytest

from ottla.config import Alteration, AlterOp, BrokerConfig, alter_broker, describe_broker
from ottla.config.fields import ConfigType
from ottla.config.properties import parse_broker_properties
from ottla.config.security import AUTHORIZERS, ListenerSecurity
from ottla.config.table import rows
from ottla.errors import ConfigError, InvalidRequest

TWO = {
    "listeners": "INSIDE://127.0.0.1:0,OUT.SIDE_1://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUT.SIDE_1:PLAINTEXT",
}
MARKER = "a-marker-secret"


def test_a_listener_has_the_values_of_the_broker_unless_it_has_its_own() -> None:
    config = BrokerConfig.parse(
        {
            **TWO,
            "ssl.client.auth": "required",
            "ssl.keystore.location": "/etc/broker.pem",
            "listener.name.out.side_1.ssl.client.auth": "requested",
            "listener.name.INSIDE.ssl.enabled.protocols": "TLSv1.3",
        }
    )
    inside, outside = config.listener("INSIDE"), config.listener("OUT.SIDE_1")
    assert (inside.ssl_client_auth, outside.ssl_client_auth) == ("required", "requested")
    assert (inside.ssl_enabled_protocols, outside.ssl_enabled_protocols) == (("TLSv1.3",), ("TLSv1.2", "TLSv1.3"))
    assert inside.ssl_keystore_location == outside.ssl_keystore_location == "/etc/broker.pem"
    assert config.with_dynamic({}).listener("INSIDE") == inside


def test_a_mechanism_has_the_values_of_its_listener_unless_it_has_its_own() -> None:
    config = BrokerConfig.parse(
        {
            **TWO,
            "listener.name.inside.scram-sha-256.sasl.jaas.config": "of SCRAM",
            "listener.name.inside.plain.sasl.jaas.config": "of PLAIN",
            "listener.name.inside.plain.connections.max.reauth.ms": "5",
            "listener.name.inside.connections.max.reauth.ms": "7",
        }
    )
    inside = config.listener("INSIDE")
    plain, scram = inside.for_mechanism("PLAIN"), inside.for_mechanism("SCRAM-SHA-256")
    assert (plain.sasl_jaas_config, plain.connections_max_reauth_ms) == ("of PLAIN", 5)
    assert (scram.sasl_jaas_config, scram.connections_max_reauth_ms) == ("of SCRAM", 7)
    assert inside.sasl_jaas_config is None
    assert config.listener("OUT.SIDE_1").for_mechanism("PLAIN").sasl_jaas_config is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("listener.name.other.ssl.client.auth", "none", "there is no listener named OTHER"),
        ("listener.name.inside.ssl.client.auth", "maybe", "listener.name.inside.ssl.client.auth: the value must be"),
        ("listener.name.inside.num.partitions", "1", "Unknown broker configuration name"),
        ("inter.broker.listener.name", "OTHER", "there is no listener named OTHER"),
        ("super.users", "alice", "such as User:alice"),
        ("authorizer.class.name", "com.example.Mine", AUTHORIZERS[0]),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({**TWO, name: value})
    assert says in str(caught.value)


def test_values_of_kafkas_controller_listener_are_left_aside() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.name.controller.ssl.client.auth": "required",
        }
    )
    assert "listener.name.controller.ssl.client.auth" in config.ignored


def test_a_properties_file_has_values_of_listeners() -> None:
    text = "listeners=PLAINTEXT://:9092\nlistener.name.plaintext.ssl.client.auth=%s"
    assert parse_broker_properties(text % "required").listener("PLAINTEXT").ssl_client_auth == "required"
    with pytest.raises(ConfigError, match=r"server.properties, line 2: .*ssl.client.auth"):
        parse_broker_properties(text % "often")


def test_certificates_of_a_listener_can_change_at_run_time() -> None:
    config = BrokerConfig.parse(TWO)
    name = "listener.name.inside.ssl.keystore.location"
    in_capitals = name.replace("inside", "INSIDE")
    dynamic = alter_broker(config, [Alteration(in_capitals, AlterOp.SET, "/new.pem")], for_all_brokers=False)
    changed = config.with_dynamic(dynamic)
    assert changed.listener("INSIDE").ssl_keystore_location == "/new.pem"
    (entry,) = describe_broker(changed, names=[name])
    assert (entry.value, entry.read_only) == ("/new.pem", False)
    with pytest.raises(InvalidRequest, match=r"while the broker runs: listener.name.inside.ssl.client.auth"):
        alter_broker(
            config,
            [Alteration("listener.name.inside.ssl.client.auth", AlterOp.SET, "none")],
            for_all_brokers=False,
        )


SECRETS = [name for name, row in rows(BrokerConfig).items() if row.type is ConfigType.PASSWORD]
OF_LISTENERS = [f"listener.name.inside.{name}" for name in SECRETS if name in rows(ListenerSecurity)]
FORMS = {
    "ottla.zookeeper.digest": f"broker:{MARKER}",
    "ottla.zookeeper.jaas.config": f'x.DigestLoginModule required username="broker" password="{MARKER}";',
}


@pytest.mark.parametrize("name", [*SECRETS, *OF_LISTENERS])
def test_secrets_are_never_shown(name: str) -> None:
    config = BrokerConfig.parse({**TWO, name: FORMS.get(name, MARKER)})
    (entry,) = describe_broker(config, names=[name])
    assert entry.is_sensitive
    assert entry.value is None
    assert MARKER not in f"{config!r} {config.listener('INSIDE')!r} {describe_broker(config)}"
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({**TWO, name: [MARKER]})
    assert MARKER not in str(caught.value)
