"""Read the options of a .proto text."""

from __future__ import annotations

from typing import Any

from ottla.registry.protobuf.cursor import Cursor


class Options:
    """Reads ``name = value`` at a place of a text into the message of options."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def bracketed(self, options: Any, field: Any = None) -> None:
        self._cursor.want("[")
        while True:
            if (
                field is not None
                and self._cursor.now.text in ("default", "json_name")
                and self._cursor.now.kind == "word"
            ):
                name = self._cursor.next().text
                self._cursor.want("=")
                value = self._constant()
                text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                setattr(field, "default_value" if name == "default" else name, text)
            else:
                self.option(options)
            if self._cursor.take("]"):
                return
            self._cursor.want(",")

    def option(self, options: Any) -> None:
        """``name = value``; a name that the package does not know stays as it is written."""
        parts: list[tuple[str, bool]] = []
        while True:
            if self._cursor.take("("):
                parts.append((self._cursor.name(), True))
                self._cursor.want(")")
            else:
                parts.append((self._cursor.word(), False))
            if not self._cursor.take("."):
                break
        self._cursor.want("=")
        start = self._cursor.index
        value = self._aggregate() if self._cursor.at("{") else self._constant()
        if not (len(parts) == 1 and not parts[0][1] and self._known(options, parts[0][0], value)):
            self._unknown(options.uninterpreted_option.add(), parts, value, start)

    def _known(self, options: Any, name: str, value: Any) -> bool:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or name == "uninterpreted_option" or isinstance(value, _Aggregate):
            return False
        try:
            if field.enum_type is not None:
                value = field.enum_type.values_by_name[value].number
            elif isinstance(value, bytes):
                value = value.decode()
            elif value in ("true", "false"):
                value = value == "true"
            if field.is_repeated:
                getattr(options, name).append(value)
            else:
                setattr(options, name, value)
        except (KeyError, TypeError, ValueError, AttributeError):
            self._cursor.fail(f"{value!r} is not a value of option {name}")
        return True

    def _unknown(self, option: Any, parts: list[tuple[str, bool]], value: Any, start: int) -> None:
        for name, is_extension in parts:
            option.name.add(name_part=name, is_extension=is_extension)
        if isinstance(value, _Aggregate):
            option.aggregate_value = " ".join(
                token.text for token in self._cursor.tokens[start + 1 : self._cursor.index - 1]
            )
        elif isinstance(value, bytes):
            option.string_value = value
        elif isinstance(value, str):
            option.identifier_value = value
        elif isinstance(value, float):
            option.double_value = value
        elif value < 0:
            option.negative_int_value = value
        else:
            option.positive_int_value = value

    def _constant(self) -> bytes | str | int | float:
        if self._cursor.now.kind == "text":
            return self._cursor.text()
        sign = "-" if self._cursor.take("-") else ""
        if self._cursor.now.kind == "word":
            return sign + self._cursor.name()
        if self._cursor.now.kind != "number":
            self._cursor.fail("expected a value")
        text = self._cursor.next().text
        try:
            is_octal = len(text) > 1 and text[0] == "0" and text.isdigit()
            value = int(sign + text, 8 if is_octal else 0)
        except ValueError:
            return float(sign + text.rstrip("f"))
        if not -(2**63) <= value < 2**64:
            self._cursor.fail(f"the number {value} is too large")
        return value

    def _aggregate(self) -> _Aggregate:
        depth = 0
        while True:
            token = self._cursor.next()
            if token.kind == "end":
                self._cursor.fail("expected '}'")
            if token.kind == "sign":
                depth += (token.text == "{") - (token.text == "}")
            if depth == 0:
                return _Aggregate()


class _Aggregate:
    """A value in braces."""
