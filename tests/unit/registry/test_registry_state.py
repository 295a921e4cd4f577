"""The records of ``_schemas`` and the state that they make."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.api import route
from ottla.registry.operations import Operations
from ottla.registry.records import encoded
from ottla.registry.requests import Request
from ottla.registry.state import State

#: Records as Confluent's registry writes them.
CONFLUENTS: list[tuple[str, str | None]] = [
    ('{"keytype":"NOOP","magic":0}', None),
    ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
    (
        '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
        '{"subject":"a-value","version":1,"id":3,"schema":"\\"int\\"","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"b-value","version":1,"magic":1}',
        '{"subject":"b-value","version":1,"id":4,"md5":"x","schemaType":"JSON",'
        '"references":[{"name":"r","subject":"a-value","version":1}],"schema":"{}","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}',
        '{"subject":"c","version":1,"id":4,"schema":"\\"long\\""}',
    ),
    ('{"keytype":"MODE","subject":"b-value","magic":0}', '{"mode":"READONLY"}'),
    ('{"keytype":"DELETE_SUBJECT","subject":"b-value","magic":0}', '{"subject":"b-value","version":1}'),
    ('{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}', None),
    ('{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}', '{"tenant":"default","context":".x"}'),
]


def test_records_of_confluents_registry_are_understood() -> None:
    state = State()
    for key, value in CONFLUENTS:
        state.replay(key.encode(), None if value is None else value.encode())
    assert state.config_of("a-value")["compatibilityLevel"] == "FULL"
    assert [one.number for one in state.versions("a-value")] == [1]
    assert state.versions("b-value") == []
    assert [one.deleted for one in state.versions("b-value", deleted=True)] == [True]
    assert not state.has("c", deleted=True)
    assert state.mode_of("b-value") == "READONLY"
    assert state.largest_id == 4
    assert [one.subject for one in state.referring("a-value", 1, deleted=True)] == ["b-value"]


def run(state: State, method: str, path: str, body: Any = None, **query: str) -> Any:
    """Run a request and replay what it writes, as a registry does."""
    data = b"" if body is None else json.dumps(body).encode()
    request = Request(method, tuple(path.strip("/").split("/")), query, data)
    outcome = route(request).run(Operations(state), request)
    for key, value in outcome.records:
        state.replay(encoded(key), encoded(value))
    return outcome.answer


def test_the_records_we_write_have_confluents_form() -> None:
    state = State()
    request = Request("POST", ("subjects", "s", "versions"), {}, b'{"schema": "{\\"type\\": \\"int\\"}"}')
    (record,) = route(request).run(Operations(state), request).records
    assert encoded(record[0]) == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    value = json.loads(encoded(record[1]) or b"")
    assert list(value) == ["subject", "version", "id", "md5", "schema", "deleted"]
    assert (value["id"], value["schema"], value["deleted"]) == (1, '"int"', False)
    request = Request("PUT", ("config",), {}, b'{"compatibility": "full"}')
    (record,) = route(request).run(Operations(state), request).records
    assert encoded(record[0]) == b'{"keytype":"CONFIG","magic":0}'
    assert encoded(record[1]) == b'{"compatibilityLevel":"FULL"}'


def test_an_id_stays_while_a_deleted_version_has_it() -> None:
    state = State()
    assert run(state, "POST", "/subjects/s/versions", {"schema": '"int"'})["id"] == 1
    assert run(state, "DELETE", "/subjects/s") == [1]
    assert run(state, "GET", "/schemas/ids/1")["schema"] == '"int"'
    assert run(state, "POST", "/subjects/t/versions", {"schema": '"int"'})["id"] == 1
    assert run(state, "DELETE", "/subjects/s", permanent="true") == [1]
    assert run(state, "GET", "/schemas/ids/1/subjects") == ["t"]
    # An id is not given again, even if its schema is gone.
    run(state, "DELETE", "/subjects/t")
    run(state, "DELETE", "/subjects/t", permanent="true")
    assert run(state, "POST", "/subjects/u/versions", {"schema": '"long"'})["id"] == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["a", "JSON", "READONLY", "FULL"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "subject", "version", "id", "schema", "mode"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.fixed_dictionaries(
    {"keytype": st.sampled_from(["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "NOOP", "X"]) | JSON},
    optional={"subject": JSON, "version": JSON},
)
VALUES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("subject", "version", "id", "schema", "schemaType", "references", "metadata", "mode", "deleted"), JSON
    ),
)


@given(st.lists(st.tuples(KEYS | JSON, VALUES | JSON), max_size=8))
def test_any_record_can_be_replayed_and_asked_for(found: list[tuple[Any, Any]]) -> None:
    state = State()
    for key, value in found:
        state.replay(json.dumps(key).encode(), json.dumps(value).encode())
    state.replay(b"\xff", b"{")
    state.replay(None, None)
    run(state, "GET", "/schemas", deleted="true")
    run(state, "GET", "/subjects", deleted="true")
