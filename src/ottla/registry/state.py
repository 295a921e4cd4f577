"""The state of a registry: what the records of its topic say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from ottla.registry import records
from ottla.registry.levels import BACKWARD
from ottla.registry.modes import READWRITE
from ottla.registry.values import LATEST, Schema, Version

_NO_VERSIONS: dict[int, Version] = {}


class State:
    """Changes by `replay` only, so a restart and a request take the same path.

    >>> state = State()
    >>> state.replay(b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"FULL"}')
    >>> state.config_of("orders-value")["compatibilityLevel"]
    'FULL'
    """

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.largest_id = 0
        self._ids: dict[Schema, int] = {}
        self._guids: dict[str, Schema] = {}
        self._by_id: dict[int, dict[tuple[str, int], None]] = {}
        self._referring: defaultdict[tuple[str, int], dict[tuple[str, int], None]] = defaultdict(dict)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Take in a record of the topic. Records of other kinds and damaged ones change nothing."""
        found, content = records.decoded_key(key), records.decoded_value(value)
        if found is None:
            return
        if found.kind == "SCHEMA" and found.subject is not None:
            self._remove(found.subject, found.version)
            version = None if content is None else records.version_of(found, content)
            if version is not None:
                self._add(version)
        elif found.kind == "DELETE_SUBJECT" and found.subject is not None and content is not None:
            self._delete_up_to(found.subject, content.get("version"))
        elif found.kind == "CONFIG":
            self._set(self.configs, found.subject, content)
        elif found.kind == "MODE":
            mode = None if content is None else content.get("mode")
            self._set(self.modes, found.subject, mode if isinstance(mode, str) else None)

    @staticmethod
    def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
        if value is None:
            table.pop(subject, None)
        else:
            table[subject] = value

    def _add(self, version: Version) -> None:
        place = (version.subject, version.number)
        self.subjects.setdefault(version.subject, {})[version.number] = version
        self._by_id.setdefault(version.id, {})[place] = None
        self._ids.setdefault(version.schema, version.id)
        self._guids[version.schema.guid] = version.schema
        self.largest_id = max(self.largest_id, version.id)
        for one in version.schema.references:
            self._referring[one.subject, one.version][place] = None

    def _remove(self, subject: str, number: int) -> None:
        version = self.subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        places = self._by_id[version.id]
        del places[subject, number]
        if not places:
            del self._by_id[version.id]
            if self._ids.get(version.schema) == version.id:
                del self._ids[version.schema]
                del self._guids[version.schema.guid]
        for one in version.schema.references:
            self._referring[one.subject, one.version].pop((subject, number), None)

    def _delete_up_to(self, subject: str, last: Any) -> None:
        for number, version in list(self.subjects.get(subject, {}).items()):
            if isinstance(last, int) and number <= last:
                self.subjects[subject][number] = replace(version, deleted=True)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject in order; with `deleted`, also those that are deleted softly."""
        found = sorted(self.subjects.get(subject, _NO_VERSIONS).items())
        return [one for _, one in found if deleted or not one.deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """A version of a subject, or the latest."""
        if number == LATEST:
            found = self.versions(subject, deleted=deleted)
            return found[-1] if found else None
        one = self.subjects.get(subject, _NO_VERSIONS).get(number)
        return one if one is not None and (deleted or not one.deleted) else None

    def has(self, subject: str, *, deleted: bool = False) -> bool:
        found = self.subjects.get(subject, _NO_VERSIONS)
        return bool(found) if deleted else any(not one.deleted for one in found.values())

    def places(self, schema_id: int) -> list[Version]:
        """The versions with an id, deleted ones too."""
        return [self.subjects[subject][number] for subject, number in self._by_id.get(schema_id, ())]

    def id_of(self, schema: Schema) -> int | None:
        """The id that a schema has already, in any subject."""
        return self._ids.get(schema)

    def by_guid(self, guid: str) -> Schema | None:
        return self._guids.get(guid)

    def referring(self, subject: str, number: int, *, deleted: bool = False) -> list[Version]:
        """The versions that refer to a version."""
        found = [self.subjects[one][other] for one, other in self._referring.get((subject, number), ())]
        return [one for one in found if deleted or not one.deleted]

    def config_of(self, subject: str | None) -> dict[str, Any]:
        """The config that holds for a subject: its own, over that of all."""
        return {"compatibilityLevel": BACKWARD, **self.configs.get(None, {}), **self.configs.get(subject, {})}

    def mode_of(self, subject: str | None) -> str:
        return self.modes.get(subject) or self.modes.get(None) or READWRITE
