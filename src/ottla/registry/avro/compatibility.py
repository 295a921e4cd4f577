"""Decide whether one Avro schema reads what another wrote, by the rules of Avro's schema resolution."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.registry.avro.parsing import Field, Node

_PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def problems(reader: Node, writer: Node) -> list[str]:
    """Why data written with `writer` cannot be read with `reader`; empty if it can."""
    return list(_Comparison().compare(reader, writer, "/"))


class _Comparison:
    """One comparison. A pair that is being compared already, in a recursive type, counts as compatible."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[str]] = {}

    def compare(self, reader: Node, writer: Node, path: str) -> list[str]:
        key = (id(reader), id(writer))
        if key not in self._found:
            self._found[key] = []
            self._found[key] = list(self._compare(reader, writer, path))
        return self._found[key]

    def _compare(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        if writer.kind == "union":
            for number, branch in enumerate(writer.inside):
                if found := self.compare(reader, branch, f"{path}{number}/"):
                    yield from found if reader.kind != "union" else [_missing_branch(reader, branch, path)]
        elif reader.kind == "union":
            if all(self.compare(one, writer, path) for one in reader.inside):
                yield _missing_branch(reader, writer, path)
        elif reader.kind == writer.kind:
            yield from self._same_kind(reader, writer, path)
        elif reader.kind not in _PROMOTED.get(writer.kind, ()):
            text = f"reader type {_described(reader)} is not compatible with writer type {_described(writer)}"
            yield _problem("TYPE_MISMATCH", path, text)

    def _same_kind(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        if reader.name and reader.short_name != writer.short_name and writer.name not in reader.aliases:
            yield _problem("NAME_MISMATCH", f"{path}name", f"the name {writer.name} has become {reader.name}")
        if reader.kind in ("array", "map"):
            part = "items" if reader.kind == "array" else "values"
            yield from self.compare(reader.inside[0], writer.inside[0], f"{path}{part}/")
        elif reader.kind == "fixed" and reader.size != writer.size:
            text = f"the size of {reader.name} is {reader.size} for the reader and {writer.size} for the writer"
            yield _problem("FIXED_SIZE_MISMATCH", f"{path}size", text)
        elif reader.kind == "enum":
            missing = [one for one in writer.symbols if one not in reader.symbols]
            if missing and reader.default is None:
                text = f"the reader's enum {reader.name} has no default and lacks {', '.join(missing)}"
                yield _problem("MISSING_ENUM_SYMBOLS", f"{path}symbols", text)
        elif reader.kind == "record":
            yield from self._fields(reader, writer, path)

    def _fields(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        written = {one.name: one for one in writer.fields}
        for number, one in enumerate(reader.fields):
            found = _written(one, written)
            if found is not None:
                yield from self.compare(one.type, found.type, f"{path}fields/{number}/type/")
            elif not one.default:
                text = f"the writer has no field {one.name}, and the reader has no default for it"
                yield _problem("READER_FIELD_MISSING_DEFAULT_VALUE", f"{path}fields/{number}", text)


def _written(one: Field, written: dict[str, Field]) -> Field | None:
    return next((written[name] for name in (one.name, *one.aliases) if name in written), None)


def _missing_branch(reader: Node, writer: Node, path: str) -> str:
    text = f"the reader's union {_described(reader)} has no branch for {_described(writer)}"
    return _problem("MISSING_UNION_BRANCH", path, text)


def _described(node: Node) -> str:
    if node.kind == "union":
        return f"[{', '.join(map(_described, node.inside))}]"
    return f"{node.kind} {node.name}" if node.name else node.kind


def _problem(kind: str, path: str, text: str) -> str:
    return f"{{errorType:'{kind}', path:'{path}', description:'{text}'}}"
