"""Users with the admin client, on our broker and, with `make compat-kafka`, on Apache Kafka."""

from __future__ import annotations

from uuid import uuid4

import pytest

from compat.waiting import until
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.users import UserCredential
from ottla.errors import ResourceNotFound

BOTH = (UserCredential("SCRAM-SHA-256", 4096), UserCredential("SCRAM-SHA-512", 4096))


def fresh() -> str:
    return f"user-{uuid4().hex[:12]}"


def test_users_are_set_described_and_removed(bootstrap_servers: str) -> None:
    alice, bob = fresh(), fresh()
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.alter_users({alice: "secret", bob: "other"})
        until(lambda: {alice, bob} <= admin.describe_users().keys(), "the broker knows them")
        assert admin.describe_users([alice]) == {alice: BOTH}
        admin.alter_users({alice: "new"}, mechanisms="SCRAM-SHA-512", iterations=8192)
        until(lambda: admin.describe_users(alice)[alice][1] == ("SCRAM-SHA-512", 8192), "it has changed")
        admin.alter_users({bob: None}, mechanisms=["scram-sha-256"])
        until(lambda: admin.describe_users(bob)[bob] == BOTH[1:], "one is gone")
        admin.alter_users({alice: None, bob: None})
        until(lambda: not {alice, bob} & admin.describe_users().keys(), "both are gone")


async def test_a_user_that_does_not_exist_is_an_error_of_its_own(bootstrap_servers: str) -> None:
    alice, nobody = fresh(), fresh()
    async with AsyncAdmin(bootstrap_servers=bootstrap_servers) as admin:
        with pytest.raises(ResourceNotFound, match=nobody):
            await admin.describe_users([nobody])
        results = await admin.alter_users({alice: "secret", nobody: None}, raise_errors=False)
        assert list(results) == [alice]
        assert isinstance(results.errors[nobody], ResourceNotFound)
        await admin.alter_users({alice: None})


@pytest.mark.parametrize(
    ("passwords", "options", "problem"),
    [
        ([("alice", "hush")], {}, "give a dict"),
        ({"alice": b"hush"}, {}, "must be text, or None to remove the user, not bytes"),
        ({"alice": ""}, {}, "must not be empty"),
        ({"": "hush"}, {}, "must not be empty"),
        ({"alice": "hush"}, {"mechanisms": "PLAIN"}, "must be one of scram-sha-256, scram-sha-512"),
        ({"alice": "hush"}, {"iterations": 100}, "must be 4096 to 16384, not 100"),
    ],
)
def test_a_mistake_is_named_before_anything_is_sent(
    passwords: object, options: dict[str, object], problem: str
) -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        with pytest.raises((TypeError, ValueError), match=problem) as caught:
            admin.alter_users(passwords, **options)  # type: ignore[arg-type]
        assert "hush" not in str(caught.value)
