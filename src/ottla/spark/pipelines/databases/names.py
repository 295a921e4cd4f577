"""The names of tables, quoted for SQL. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


def quote(name: str) -> str:
    """
    >>> quote("my table")
    '"my table"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """
    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Name:
    """A table, with its schema if one was given. `str()` gives it quoted.

    >>> str(Name.of("shop.orders")), str(Name.of("shop.orders").beside("ottla_batches")), Name.of("orders").plain
    ('"shop"."orders"', '"shop"."ottla_batches"', 'orders')
    """

    schema: str
    table: str

    @classmethod
    def of(cls, text: str) -> Name:
        schema, _, table = text.rpartition(".")
        return cls(schema, table)

    def beside(self, table: str) -> Name:
        """Another table in the same schema."""
        return Name(self.schema, table)

    @property
    def plain(self) -> str:
        """As users write it."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    def __str__(self) -> str:
        return f"{quote(self.schema)}.{quote(self.table)}" if self.schema else quote(self.table)
