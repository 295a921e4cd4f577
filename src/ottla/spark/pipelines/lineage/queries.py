"""The columns that a SQL query reads, for each column of its result. sqlglot does the parsing.

What cannot be told from the text is None: a query that sqlglot does not understand, a column that nobody has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

#: How a column is made of another one, from the closest to the farthest.
IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
#: How a column decides about rows.
FILTER, JOIN, GROUP_BY = "FILTER", "JOIN", "GROUP_BY"
_DISTANCE = (IDENTITY, TRANSFORMATION, AGGREGATION)

Columns: TypeAlias = Mapping[str, Sequence[str]]
"""The columns of views, by name."""


class Column(NamedTuple):
    """A column of a source, table or step."""

    view: str
    name: str


Origins: TypeAlias = dict[Column, str]
"""The columns that a value is made of, and how."""


@dataclass(slots=True)
class Read:
    """What a result is made of."""

    columns: dict[str, Origins | None]
    """For each column of the result; None if it cannot be told."""
    rows: set[tuple[Column, str]] = field(default_factory=set)
    """The columns that decide which rows there are, and how."""


def farther(one: str, other: str) -> str:
    """
    >>> farther(IDENTITY, AGGREGATION)
    'AGGREGATION'
    """
    return max(one, other, key=_DISTANCE.index)


def merged(parts: Iterable[Origins | None]) -> Origins | None:
    """All origins together; None if one part is unknown."""
    found: Origins = {}
    for part in parts:
        if part is None:
            return None
        for column, how in part.items():
            found[column] = farther(found.get(column, how), how)
    return found


def read_query(sql: str, views: Columns) -> Read | None:
    """Read a query over these views.

    >>> read_query("SELECT id, price * 2 AS double FROM orders", {"orders": ["id", "price"]}).columns["double"]
    {Column(view='orders', name='price'): 'TRANSFORMATION'}
    """
    try:
        return _Query(sql, views).read()
    except Exception as error:  # sqlglot raises several kinds, also by mistake; lineage is not worth a failure
        logging.getLogger("ottla.spark").info("the columns of a query are unknown: %s", error)
        return None


def read_expression(sql: str, view: str, columns: Sequence[str]) -> Origins | None:
    """The columns of one view that an expression uses.

    >>> read_expression("sum(total)", "orders", ["id", "total"])
    {Column(view='orders', name='total'): 'AGGREGATION'}
    """
    found = read_query(f"SELECT {sql} AS result FROM {view}", {view: columns})
    return None if found is None else found.columns.get("result")


class _Query:
    def __init__(self, sql: str, views: Columns) -> None:
        import sqlglot
        from sqlglot import expressions
        from sqlglot.optimizer.qualify import qualify
        from sqlglot.optimizer.scope import build_scope

        logging.getLogger("sqlglot").setLevel(logging.ERROR)
        self._kinds = expressions
        self._views = {name.lower(): name for name in views}
        self._names = {name.lower(): {one.lower(): one for one in columns} for name, columns in views.items()}
        schema: dict[str, object] = {name: dict.fromkeys(columns, "string") for name, columns in self._names.items()}
        tree = qualify(
            sqlglot.parse_one(sql, dialect="spark"),
            dialect="spark",
            schema=schema,
            validate_qualify_columns=False,
            quote_identifiers=False,
        )
        root: Any = build_scope(tree)
        self._root = root
        self._scopes: list[Any] = list(root.traverse())
        self._resolving: set[tuple[int, str]] = set()

    def read(self) -> Read:
        names = self._root.expression.named_selects
        found = Read({name: self._output(self._root, name) for name in names})
        for scope in self._scopes:
            for how, expression in _conditions(scope.expression):
                # What is unknown here is left out: the rest is still true.
                for column in expression.find_all(self._kinds.Column):
                    origins = self._origins(scope, column) or {}
                    found.rows |= {(one, how) for one in origins}
        return found

    def _output(self, scope: Any, name: str) -> Origins | None:
        """The origins of a column of a scope's result."""
        key = (id(scope), name)
        if key in self._resolving:
            return None  # a recursive query
        self._resolving.add(key)
        try:
            if isinstance(scope.expression, self._kinds.SetOperation):
                place = scope.expression.named_selects.index(name)
                return merged(self._output(one, one.expression.named_selects[place]) for one in _sides(scope))
            if isinstance(scope.expression, self._kinds.UDTF):
                return self._made_of(scope, scope.expression.this)
            selects = [one for one in scope.expression.selects if one.alias_or_name == name]
            return self._made_of(scope, selects[0].unalias()) if selects else None
        finally:
            self._resolving.discard(key)

    def _made_of(self, scope: Any, expression: Any) -> Origins | None:
        if isinstance(expression, self._kinds.Star):
            return None
        how = IDENTITY if isinstance(expression, self._kinds.Column) else TRANSFORMATION
        if expression.find(self._kinds.AggFunc) is not None:
            how = AGGREGATION
        found = merged(self._origins(scope, one) for one in expression.find_all(self._kinds.Column))
        return None if found is None else {one: farther(how, other) for one, other in found.items()}

    def _origins(self, scope: Any, column: Any) -> Origins | None:
        source = self._source(scope, column)
        if source is None:
            return None
        if isinstance(source, self._kinds.Table):
            view = source.name.lower()
            name = self._names.get(view, {}).get(column.name.lower())
            return None if name is None else {Column(self._views[view], name): IDENTITY}
        return self._output(source, column.name)

    def _source(self, scope: Any, column: Any) -> Any:
        """What a column belongs to: in its own query, one inside it, or one around it."""
        inside = [one for one in self._scopes if any(other is column for other in one.columns)]
        for one in [scope, *inside, *_around(scope)]:
            if column.table in one.sources:
                return one.sources[column.table]
        return None


def _sides(scope: Any) -> list[Any]:
    """Both queries of a UNION; older versions of sqlglot have another name for them."""
    return list(getattr(scope, "set_operation_scopes", None) or scope.union_scopes)


def _around(scope: Any) -> Iterable[Any]:
    while scope.parent is not None:
        scope = scope.parent
        yield scope


def _conditions(select: Any) -> Iterable[tuple[str, Any]]:
    """The parts of a query that decide about rows."""
    for key, how in (("where", FILTER), ("having", FILTER), ("group", GROUP_BY)):
        if select.args.get(key) is not None:
            yield how, select.args[key]
    for join in select.args.get("joins") or ():
        if join.args.get("on") is not None:
            yield JOIN, join.args["on"]
