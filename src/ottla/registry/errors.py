"""Errors of a schema registry, with the HTTP status and the error code that Confluent's registry answers."""

from __future__ import annotations

from ottla.errors import OttlaError


class RegistryError(OttlaError):
    """A request that the registry refuses.

    >>> subject_not_found("orders-value").code
    40401
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = code if code < 1000 else code // 100
        self.message = message


class InvalidSchema(OttlaError):
    """A text that is not a schema of its type."""


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(40407, text)


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(text: str) -> RegistryError:
    return RegistryError(40901, text)


def invalid_schema(text: str) -> RegistryError:
    return RegistryError(42201, text)


def invalid_version(given: str) -> RegistryError:
    text = f"The specified version '{given}' is not a valid version id."
    return RegistryError(42202, f'{text} Allowed values are between [1, 2^31-1] and the string "latest"')


def invalid_level(given: object) -> RegistryError:
    levels = "NONE, BACKWARD, FORWARD, FULL, BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE and FULL_TRANSITIVE"
    return RegistryError(42203, f"Invalid compatibility level {given}. Valid values are {levels}")


def invalid_mode(given: object) -> RegistryError:
    return RegistryError(
        42204, f"Invalid mode {given}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT"
    )


def not_permitted(text: str) -> RegistryError:
    return RegistryError(42205, text)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema {{subject={subject},version={version}}}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")


def schema_too_large(text: str) -> RegistryError:
    return RegistryError(42209, text)


def timed_out(text: str) -> RegistryError:
    return RegistryError(50002, text)


def unprocessable(text: str) -> RegistryError:
    """A body with wrong or missing fields."""
    return RegistryError(422, text)
