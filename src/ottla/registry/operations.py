"""What requests find and change. An operation decides on the state, and returns the records that make it so."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.registry import errors, levels, records
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.levels import LEVELS
from ottla.registry.modes import IMPORT, MODES, READONLY, READONLY_OVERRIDE, READWRITE
from ottla.registry.records import Record
from ottla.registry.requests import Offer
from ottla.registry.schemas import Parsed, Parser
from ottla.registry.state import State
from ottla.registry.values import LATEST, TYPES, Schema, Version

_LARGEST_SCHEMA = 1_000_000
_DEEPEST_REFERENCES = 50
_SETTINGS = {
    "alias": str, "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "compatibilityGroup": str, "defaultMetadata": dict, "overrideMetadata": dict, "defaultRuleSet": dict,
    "overrideRuleSet": dict, "compatibilityPolicy": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a request, true as soon as the records are in the topic."""

    answer: Any
    records: list[Record] = field(default_factory=list)


class Operations:
    """The operations on one state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._parser = Parser(self._references)

    # ── reading schemas ───────────────────────────────────────────────────────────────────────────────────────────

    def parsed(self, schema: Schema) -> Parsed:
        """Read a schema; what is wrong with it is error 42201."""
        if schema.type not in TYPES:
            raise errors.invalid_schema(f"Invalid schema type {schema.type}: use AVRO, JSON or PROTOBUF")
        if not schema.text.strip():
            raise errors.invalid_schema("Empty schema")
        if len(schema.text) > _LARGEST_SCHEMA:
            raise errors.schema_too_large(f"the schema has more than {_LARGEST_SCHEMA} characters")
        try:
            return self._parser(schema)
        except InvalidSchema as error:
            raise errors.invalid_schema(f"Invalid schema of type {schema.type}: {error}") from None
        except RecursionError:
            raise errors.invalid_schema("Invalid schema: it is nested too deeply") from None

    def _references(self, schema: Schema) -> dict[str, str]:
        """The texts of all schemas that a schema refers to, those that others need first."""
        found: dict[str, str] = {}
        self._collect(schema, found, 0)
        return found

    def _collect(self, schema: Schema, found: dict[str, str], depth: int) -> None:
        if depth > _DEEPEST_REFERENCES:
            raise InvalidSchema("references refer to each other too deeply")
        for one in schema.references:
            if not one.name:
                raise InvalidSchema("a reference has no name")
            version = self.state.version(one.subject, one.version, deleted=True)
            if version is None:
                raise InvalidSchema(f"no schema reference found for subject {one.subject!r} and version {one.version}")
            if one.name not in found:
                self._collect(version.schema, found, depth + 1)
                found[one.name] = version.schema.text

    def canonical(self, schema: Schema, *, normalize: bool) -> Schema:
        """The schema as it is stored."""
        references = tuple(self._pinned(one) for one in schema.references)
        schema = replace(schema, references=references)
        text = self.parsed(schema).canonical(normalize=normalize)
        if normalize:
            schema = replace(schema, references=tuple(sorted(references)))
        return replace(schema, text=text)

    def _pinned(self, one: Any) -> Any:
        """A reference to the latest version refers to that version for good."""
        if one.version != LATEST:
            return one
        version = self.state.version(one.subject, LATEST)
        return one if version is None else one._replace(version=version.number)

    def _normalize(self, subject: str, asked: bool) -> bool:
        return asked or self.state.config_of(subject).get("normalize") is True

    # ── registering ───────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, subject: str, offer: Offer, *, normalize: bool = False) -> Outcome:
        """Add a version to a subject, unless it has the schema already."""
        mode = self.state.mode_of(subject)
        if offer.id >= 0 and mode != IMPORT:
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if offer.id < 0 and mode != READWRITE:
            raise errors.not_permitted(f"Subject {subject} is not in read-write mode")
        schema = self.canonical(offer.schema, normalize=self._normalize(subject, normalize))
        same = self._same(subject, schema)
        if same is not None and offer.version in (0, same.number) and offer.id in (-1, same.id):
            return Outcome(_registered(same))
        versions = self.state.versions(subject)
        if mode != IMPORT:
            self._check_compatible(subject, schema, versions)
        return self._added(subject, schema, offer, mode)

    def _added(self, subject: str, schema: Schema, offer: Offer, mode: str) -> Outcome:
        everything = self.state.versions(subject, deleted=True)
        number = everything[-1].number + 1 if everything else 1
        if offer.version > 0 and offer.version != number:
            if mode != IMPORT:
                raise errors.invalid_schema("Version is not one more than previous version")
            number = offer.version
        version = Version(subject, number, self._id(schema, offer.id), schema)
        # A deleted version with the same schema makes room for the new one, as in Confluent's registry.
        gone: list[Record] = [
            (records.schema_key(subject, one.number), None)
            for one in everything
            if one.deleted and one.id == version.id and one.number < number
            if not self.state.referring(subject, one.number, deleted=True)
        ]
        return Outcome(_registered(version), [*gone, records.schema_record(version)])

    def _id(self, schema: Schema, wanted: int) -> int:
        if wanted < 0:
            known = self.state.id_of(schema)
            return self.state.largest_id + 1 if known is None else known
        if any(one.schema != schema for one in self.state.places(wanted)):
            raise errors.not_permitted(f"Overwrite new schema with id {wanted} is not permitted.")
        return wanted

    def _same(self, subject: str, schema: Schema, *, deleted: bool = False) -> Version | None:
        found = [one for one in self.state.versions(subject, deleted=deleted) if one.schema == schema]
        return found[-1] if found else None

    def lookup(self, subject: str, offer: Offer, *, normalize: bool = False, deleted: bool = False) -> Version:
        """The version of a subject that has a schema."""
        normalize = self._normalize(subject, normalize)
        schema = self.canonical(offer.schema, normalize=normalize)
        found = self._same(subject, schema, deleted=deleted)
        if found is None and normalize:
            for one in self.state.versions(subject, deleted=deleted):
                if one.schema.type == schema.type and self.canonical(one.schema, normalize=True) == schema:
                    found = one
        if found is None:
            raise (
                errors.schema_not_found()
                if self.state.has(subject, deleted=deleted)
                else errors.subject_not_found(subject)
            )
        return found

    # ── compatibility ─────────────────────────────────────────────────────────────────────────────────────────────

    def _check_compatible(self, subject: str, schema: Schema, versions: list[Version]) -> None:
        found = self._problems(subject, schema, versions)
        if found:
            head = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
            raise errors.incompatible(f"{head}, details: [{', '.join(found)}]")

    def _problems(self, subject: str, schema: Schema, versions: list[Version]) -> list[str]:
        config = self.state.config_of(subject)
        level, group = str(config["compatibilityLevel"]), config.get("compatibilityGroup")
        if isinstance(group, str) and group:
            own = _property(schema, group)
            versions = [one for one in versions if _property(one.schema, group) == own]
        new = Version(subject, 0, 0, schema)
        found = levels.problems(level, new, versions, self._problems_reading)
        if found is None:
            return []
        texts, other = found
        old = f"{{oldSchemaVersion: {other.number}}}"
        return [*texts, old, f"{{oldSchema: '{other.schema.text}'}}", f"{{compatibility: '{level}'}}"]

    def _problems_reading(self, reader: Version, writer: Version) -> list[str]:
        if reader.schema.type != writer.schema.type:
            return [f"Incompatible because of different schema type: {writer.schema.type}, {reader.schema.type}"]
        try:
            return self.parsed(reader.schema).problems_reading(self.parsed(writer.schema))
        except RecursionError:
            return ["The schemas are nested too deeply to compare them"]

    def check(self, subject: str, version: int | None, offer: Offer, *, normalize: bool, verbose: bool) -> Outcome:
        """Whether a schema could be registered, by the level of the subject; against one version or all."""
        versions = self.state.versions(subject)
        if version is not None:
            one = self.state.version(subject, version)
            if one is None and version != LATEST:
                raise errors.version_not_found(version)
            versions = [] if one is None else [one]
        try:
            schema = self.canonical(offer.schema, normalize=self._normalize(subject, normalize))
            found = self._problems(subject, schema, versions)
        except RegistryError as error:
            if error.code != 42201 or not verbose:
                raise
            found = [error.message]
        return Outcome({"is_compatible": not found, **({"messages": found} if verbose else {})})

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_subject(self, subject: str, *, permanent: bool) -> Outcome:
        """Delete all versions of a subject: first softly, then for good."""
        if not self.state.has(subject, deleted=True):
            raise errors.subject_not_found(subject)
        if not permanent and not self.state.has(subject):
            raise errors.subject_soft_deleted(subject)
        self._check_writable(subject)
        versions = self.state.versions(subject, deleted=permanent)
        for one in versions:
            others = self.state.referring(subject, one.number, deleted=permanent)
            if any(other.subject != subject for other in others):
                raise errors.reference_exists(subject, one.number)
            if permanent and not one.deleted:
                raise errors.subject_not_soft_deleted(subject)
        numbers = [one.number for one in versions]
        if not permanent:
            return Outcome(numbers, [records.delete_subject_record(subject, numbers[-1])])
        return Outcome(numbers, [*_tombstones(subject, numbers), *self._settings_gone(subject)])

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> Outcome:
        """Delete a version: first softly, then for good."""
        if not self.state.has(subject, deleted=True):
            raise errors.subject_not_found(subject)
        version = self.state.version(subject, number, deleted=permanent or number != LATEST)
        if version is None:
            raise errors.version_not_found(number)
        if version.deleted and not permanent:
            raise errors.version_soft_deleted(subject, version.number)
        self._check_writable(subject)
        if self.state.referring(subject, version.number, deleted=permanent):
            raise errors.reference_exists(subject, version.number)
        if not permanent:
            return Outcome(version.number, [records.schema_record(replace(version, deleted=True))])
        if not version.deleted:
            raise errors.version_not_soft_deleted(subject, version.number)
        gone: list[Record] = _tombstones(subject, [version.number])
        if len(self.state.subjects[subject]) == 1:
            gone += self._settings_gone(subject)
        return Outcome(version.number, gone)

    def _settings_gone(self, subject: str) -> list[Record]:
        gone: list[Record] = [(records.mode_key(subject), None)] if subject in self.state.modes else []
        return [*gone, (records.config_key(subject), None)] if subject in self.state.configs else gone

    def _check_writable(self, subject: str | None) -> None:
        if self.state.mode_of(subject) in (READONLY, READONLY_OVERRIDE):
            what = "The registry" if subject is None else f"Subject {subject}"
            raise errors.not_permitted(f"{what} is in read-only mode")

    # ── configs and modes ─────────────────────────────────────────────────────────────────────────────────────────

    def set_config(self, subject: str | None, given: dict[str, Any]) -> Outcome:
        """Change the compatibility level and other settings of a subject, or of all."""
        self._check_writable(subject)
        value = dict(self.state.configs.get(subject, {}))
        if given.get("compatibility") is not None:
            level = str(given["compatibility"]).upper()
            if level not in LEVELS:
                raise errors.invalid_level(json.dumps(given["compatibility"])[:60])
            value["compatibilityLevel"] = level
        for key, kind in _SETTINGS.items():
            if key not in given:
                continue
            if given[key] is None:
                value.pop(key, None)
            elif isinstance(given[key], kind):
                value[key] = given[key]
            else:
                raise RegistryError(400, f"{key} has the wrong type: {json.dumps(given[key])[:60]}")
        stored = value if subject is None else {"subject": subject, **value}
        echo = {key: value for key, value in given.items() if key in ("compatibility", *_SETTINGS)}
        return Outcome(echo, [(records.config_key(subject), stored)])

    def config(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        found = (
            self.state.config_of(subject) if default_to_global or subject is None else self.state.configs.get(subject)
        )
        if found is None:
            raise errors.no_subject_config(str(subject))
        return {key: value for key, value in found.items() if key != "subject"}

    def delete_config(self, subject: str | None) -> Outcome:
        if subject is not None and subject not in self.state.configs:
            raise errors.subject_not_found(subject)
        self._check_writable(subject)
        return Outcome(self.config(subject, default_to_global=False), [(records.config_key(subject), None)])

    def set_mode(self, subject: str | None, given: dict[str, Any], *, force: bool) -> Outcome:
        """Change the mode of a subject, or of all."""
        mode = given.get("mode")
        if not isinstance(mode, str) or mode.upper() not in MODES:
            raise errors.invalid_mode(json.dumps(mode)[:60])
        mode = mode.upper()
        if mode == IMPORT and self.state.mode_of(subject) != IMPORT and not force:
            names = self.state.subjects if subject is None else [subject]
            if any(self.state.has(name) for name in names):
                raise errors.not_permitted("Cannot import since found existing subjects")
        value = {"mode": mode} if subject is None else {"subject": subject, "mode": mode}
        return Outcome({"mode": mode}, [(records.mode_key(subject), value)])

    def mode(self, subject: str | None, *, default_to_global: bool) -> dict[str, str]:
        if subject is not None and not default_to_global and subject not in self.state.modes:
            raise errors.no_subject_mode(subject)
        return {"mode": self.state.mode_of(subject)}

    def delete_mode(self, subject: str | None) -> Outcome:
        if subject is not None and subject not in self.state.modes:
            raise errors.subject_not_found(subject)
        return Outcome({"mode": self.state.mode_of(subject)}, [(records.mode_key(subject), None)])


def _registered(version: Version) -> dict[str, Any]:
    # Without the schema: confluent-kafka would take it for the one that it sent, which has another form in Protobuf.
    return {"id": version.id, "version": version.number, "guid": version.schema.guid}


def _tombstones(subject: str, numbers: list[int]) -> list[Record]:
    return [(records.schema_key(subject, number), None) for number in reversed(numbers)]


def _property(schema: Schema, name: str) -> Any:
    found = json.loads(schema.metadata) if schema.metadata else {}
    properties = found.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None
