"""SCRAM at the broker: the RFC's example, our client against it, and every proof that is not one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import SaslAuthenticationFailed
from ottla.net.client.sasl import scram
from ottla.security.scram import (
    Credential,
    ScramMechanism,
    credential_of,
    is_password,
    login,
    pretended,
    salted_password,
)

SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def stored(mechanism: ScramMechanism, password: str, salt: bytes = b"salt", iterations: int = 4096) -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def meet(mechanism: ScramMechanism, name: str, password: str, users: dict[str, Credential]) -> str:
    """Let our client log in; return the name that the broker believes."""
    client = scram(mechanism.hash_name, name, password, nonce="of-the-client")
    server = login(
        mechanism,
        lambda who: users.get(who) or pretended(mechanism, who, "secret", 4096, 4),
        nonce="of-the-server",
    )
    next(server)
    said = next(client)
    try:
        while True:
            said = client.send(server.send(said))
    except StopIteration:
        pass
    with pytest.raises(StopIteration) as ended:
        next(server)
    return str(ended.value.value)


def test_the_example_of_the_rfc() -> None:
    """RFC 7677: user "user" with the password "pencil"."""
    credential = stored(SHA256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    talk = login(SHA256, lambda _: credential, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    next(talk)
    assert talk.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert talk.send(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    with pytest.raises(StopIteration) as ended:
        next(talk)
    assert ended.value.value == "user"


@settings(max_examples=25, deadline=None)
@given(mechanism=st.sampled_from(ScramMechanism), name=NAMES, password=NAMES, other=NAMES)
def test_only_the_right_password_is_accepted(mechanism: ScramMechanism, name: str, password: str, other: str) -> None:
    users = {name: stored(mechanism, password)}
    assert meet(mechanism, name, password, users) == name
    if other != password:
        with pytest.raises(SaslAuthenticationFailed, match="invalid user or password"):
            meet(mechanism, name, other, users)


def test_an_unknown_user_sees_the_same_as_one_with_a_wrong_password() -> None:
    def seen(users: dict[str, Credential]) -> tuple[str, int, int]:
        talk = login(SHA256, lambda who: users.get(who) or pretended(SHA256, who, "s", 4096, 4), nonce="server")
        next(talk)
        nonce, salt, iterations = talk.send(b"n,,n=alice,r=me").decode().split(",")
        with pytest.raises(SaslAuthenticationFailed) as caught:
            talk.send(f"c=biws,{nonce},p={base64.b64encode(bytes(32)).decode()}".encode())
        return str(caught.value), len(salt), len(iterations)

    assert seen({}) == seen({"alice": stored(SHA256, "x")})
    again = [pretended(SHA512, "alice", "s", 4096, 20) for _ in range(2)]
    assert again[0] == again[1] != pretended(SHA512, "alice", "another secret", 4096, 20)
    # A user that exists has a salt of its own for each mechanism.
    assert again[0].salt != pretended(SHA256, "alice", "s", 4096, 20).salt
    assert len(again[0].salt) == 20
    assert not is_password(SHA512, again[0], "")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.from_regex(rb"n,(a=[a-z=,]*)?,n=[a-z=,3D2C]*,r=[ -~]*", fullmatch=True))
def test_anything_else_as_the_first_message_is_refused_or_challenged(message: bytes) -> None:
    talk = login(SHA256, lambda _: Credential(b"s", bytes(32), bytes(32), 4096), nonce="server")
    next(talk)
    try:
        said = talk.send(message)
    except SaslAuthenticationFailed as error:
        said = str(error).encode()
    assert said == b"invalid SCRAM message" or said.endswith(b"server,s=cw==,i=4096")


@pytest.mark.parametrize(
    "final",
    [
        b"", b"c=biws", b"c=biws,r=meserver,p=", b"c=biws,r=meserver,p=AAAA", b"c=biws,r=meserver,p=A", b"\xff\xfe",
        b"c=biws,r=me,p=" + base64.b64encode(bytes(32)), b"c=eSws,r=meserver,p=" + base64.b64encode(bytes(32)),
    ],
)  # fmt: skip
def test_anything_else_as_the_proof_is_refused(final: bytes) -> None:
    talk = login(SHA256, lambda _: stored(SHA256, "x"), nonce="server")
    next(talk)
    talk.send(b"n,,n=alice,r=me")
    with pytest.raises(SaslAuthenticationFailed):
        talk.send(final)


def test_a_client_cannot_act_for_another_user() -> None:
    client = scram("sha256", "alice", "x", nonce="me")
    talk = login(SHA256, lambda _: stored(SHA256, "x"), nonce="server")
    next(talk)
    challenge = talk.send(b"n,a=bob,n=alice,r=me")
    next(client)
    with pytest.raises(SaslAuthenticationFailed):
        talk.send(client.send(challenge))


def test_keys_are_never_shown() -> None:
    assert repr(stored(SHA256, "x")) == "Credential(iterations=4096)"


def test_delegation_tokens_are_refused() -> None:
    talk = login(SHA256, lambda _: stored(SHA256, "x"), nonce="server")
    next(talk)
    with pytest.raises(SaslAuthenticationFailed, match="delegation tokens"):
        talk.send(b"n,,n=alice,r=me,tokenauth=true")


@pytest.mark.parametrize("message", [b"n,,n=%s,r=x" % (b"x" * 9000), b"n,,n=x,r=x" + b",a=" * 3000])
def test_a_message_must_be_short_because_others_wait_while_it_is_read(message: bytes) -> None:
    talk = login(SHA256, lambda who: pretended(SHA256, who, "secret", 4096, 4), nonce="nonce")
    next(talk)
    with pytest.raises(SaslAuthenticationFailed, match="invalid SCRAM message"):
        talk.send(message)
