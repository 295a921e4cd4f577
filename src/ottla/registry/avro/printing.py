"""Print an Avro schema in one form, as Avro for Java does: the same schema gives the same text."""

from __future__ import annotations

import json
from typing import Any

from ottla.registry.avro.parsing import NAMED, Node


def canonical(node: Node, *, normalize: bool = False) -> str:
    """The schema as compact JSON; `normalize` also sorts attributes that Avro does not define."""
    return json.dumps(_form(node, "", set(), normalize), separators=(",", ":"), ensure_ascii=False)


def _form(node: Node, namespace: str, known: set[str], normalize: bool) -> Any:
    if node.kind == "union":
        return [_form(one, namespace, known, normalize) for one in node.inside]
    others = dict(sorted(node.others.items())) if normalize else node.others
    if node.kind in ("array", "map"):
        part = "items" if node.kind == "array" else "values"
        return {"type": node.kind, part: _form(node.inside[0], namespace, known, normalize), **others}
    if node.kind not in NAMED:
        return {"type": node.kind, **others} if others else node.kind
    if node.name in known:
        return node.short_name if node.namespace == namespace else node.name
    known.add(node.name)
    form: dict[str, Any] = {"type": node.kind, "name": node.short_name}
    if node.namespace != namespace:
        form["namespace"] = node.namespace
    if node.doc is not None:
        form["doc"] = node.doc
    if node.kind == "record":
        form["fields"] = [_field(one, node.namespace, known, normalize) for one in node.fields]
    elif node.kind == "enum":
        form["symbols"] = list(node.symbols)
        if node.default is not None:
            form["default"] = node.default
    else:
        form["size"] = node.size
    form.update(others)
    if node.aliases:
        inner = f"{node.namespace}."
        form["aliases"] = [
            one.removeprefix(inner) if "." not in one.removeprefix(inner) else one for one in node.aliases
        ]
    return form


def _field(one: Any, namespace: str, known: set[str], normalize: bool) -> dict[str, Any]:
    form: dict[str, Any] = {"name": one.name, "type": _form(one.type, namespace, known, normalize)}
    if one.doc is not None:
        form["doc"] = one.doc
    if one.default:
        form["default"] = one.default[0]
    if one.order != "ascending":
        form["order"] = one.order
    if one.aliases:
        form["aliases"] = list(one.aliases)
    return {**form, **(dict(sorted(one.others.items())) if normalize else one.others)}
