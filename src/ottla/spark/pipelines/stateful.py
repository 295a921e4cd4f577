"""Refuse a checkpoint of another pipeline, or of steps that have kept another state.

A checkpoint remembers what was declared when its query first started, in a file for each sink:

    declared.<sink>.json    {"pipeline": "orders", "state": [["window", {"window": "1 minute", …}]]}

Spark finds only changes of the columns of a state, at the first batch. It goes on if a window gets another length, and
its rows are then a mixture of both. The state of a step with `latest`, and of a table with `keys`, is in the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.spark.pipelines.checks.modes import joins_stream
from ottla.spark.pipelines.declaration import Dedupe, Join, LakeSink, Latest, Pipeline, Session, Sink, Step, Window
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.places import Place
from ottla.spark.pipelines.shared.layout import names_before
from ottla.spark.pipelines.times import millis

#: What the state of each kind of step depends on, by the names in TOML.
_FIELDS: Mapping[type[Step], tuple[str, Mapping[str, str]]] = {
    Dedupe: ("dedupe", {"dedupe": "keys"}),
    Window: ("window", {name: name for name in ("window", "slide", "group_by", "aggregate", "event_time")}),
    Session: ("session", {name: name for name in ("session", "group_by", "aggregate", "event_time")}),
    Join: ("join", {name: name for name in ("on", "how")}),
    Latest: ("latest", {"latest": "keys", "sequence": "order", "history": "history"}),
}
_TIMES = ("window", "slide", "session")
#: The order of these names does not matter.
_SETS = ("latest", "keys")
_DEFAULTS = {"how": "inner", "history": False}
_SINK = "sink"

State = list[tuple[str, dict[str, Any]]]


def check_state(checkpoint: Place, where: str, pipeline: Pipeline, sink: Sink, *, is_new: bool, reset: str) -> None:
    """Compare a sink with what its checkpoint remembers. One without batches (`is_new`) remembers the sink from now on.

    `reset` says how to start again.
    """
    file, now = f"declared.{sink.name}.json", state_of(pipeline, sink)
    known = _read(checkpoint.read(file))
    if known is None or is_new:
        checkpoint.replace(file, json.dumps({"pipeline": pipeline.name, "state": now}))
        return
    name, before = known
    if name != pipeline.name:
        raise WrittenError(
            f"the checkpoint {where} belongs to pipeline {name}, not to {pipeline.name}: records that {name} has read "
            f"would be missing in sink {sink.name}. Set another checkpoint. If {name} is the old name of this "
            f"pipeline, delete the file {where}/{file}, and run it again"
        )
    found = difference(before, now)
    if found:
        raise WrittenError(
            f"sink {sink.name} has rows or state of other steps: {found}. Undo this change. Or, to start again from "
            f"the beginning, {reset}"
        )


def state_of(pipeline: Pipeline, sink: Sink) -> State:
    """What the state of a sink depends on, as far as the declaration tells."""
    before = names_before(pipeline, sink)
    steps = [one for one in pipeline.steps if one.name in before and type(one) in _FIELDS]
    found: State = []
    for one in steps:
        if not isinstance(one, Join) or joins_stream(pipeline, one):
            kind, names = _FIELDS[type(one)]
            found.append((kind, {key: _plain(getattr(one, name)) for key, name in names.items()}))
    if isinstance(sink, LakeSink) and not any(kind == "latest" for kind, _ in found):
        found.append((_SINK, {"keys": list(sink.keys)}))  # databases have a unique index, which is checked
    return found


def difference(before: State, now: State) -> str:
    """What has changed, in words; empty if nothing.

    >>> difference([("window", {"window": "1 minute", "slide": None})], [("window", {"window": "2 minutes"})])
    'window was "1 minute" and is "2 minutes"'
    >>> difference([("window", {"window": "1 minute"})], [("window", {"window": "60 seconds"})])
    ''
    >>> difference([], [("dedupe", {"dedupe": ["id"]})])
    'the steps that keep state were none and are dedupe'
    """
    kinds, others = [kind for kind, _ in before], [kind for kind, _ in now]
    if kinds != others:
        old, new = (", ".join(kind for kind in some if kind != _SINK) or "none" for some in (kinds, others))
        return f"the steps that keep state were {old} and are {new}"
    return ", ".join(
        f"{key} was {_text(old.get(key))} and is {_text(value)}"
        for (_, old), (_, new) in zip(before, now, strict=True)
        for key, value in new.items()
        if not _same(key, old.get(key), value)
    )


def _same(key: str, old: Any, new: Any) -> bool:
    if key in _TIMES and old is not None and new is not None:
        return millis(old) == millis(new)
    if key in _SETS:
        return set(old or ()) == set(new or ())
    return bool((old or _DEFAULTS.get(key)) == (new or _DEFAULTS.get(key)))


def _text(value: Any) -> str:
    return "not set" if value in (None, []) else json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value as JSON returns it."""
    return json.loads(json.dumps(dict(value) if isinstance(value, Mapping) else value))


def _read(text: str | None) -> tuple[str, State] | None:
    """None if there is none, or if it is damaged."""
    try:
        found = json.loads(text or "")
        return str(found["pipeline"]), [(str(kind), dict(values)) for kind, values in found["state"]]
    except (ValueError, KeyError, TypeError):
        return None
