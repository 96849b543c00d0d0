"""Error codes, for errors.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphql import GraphQLInterfaceType

from revstream.gql.http.media_types import JSON
from revstream.gql.observability.error_codes import CODES
from revstream.gql.observability.error_response import answer
from tools.reference.example_schema import example_schema
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS"]


def _codes() -> str:
    return table(
        ("code", "meaning", "HTTP status", "retry"),
        (
            (f"[`{name}`](#{name.lower()})", linked(each.meaning), str(_status(name)), each.retry)
            for name, each in CODES.items()
        ),
    )


def _status(name: str) -> int:
    """Return the status of a request that is refused with this code before it is executed."""
    body = {"errors": [{"message": "", "extensions": {"code": name}}]}
    return answer(body, JSON).status_code


def _details(name: str) -> str:
    each = CODES[name]
    facts = [("code", f"`{name}`"), *((fact, linked(says)) for fact, says in each.facts.items())]
    return "\n".join(
        (
            linked(each.meaning),
            "",
            f"- HTTP status: {_status(name)}, if nothing was executed",
            f"- Retry: {each.retry}. {linked(each.remedy)}",
            "",
            table(("`extensions`", "meaning"), ((code(fact), says) for fact, says in facts)),
        )
    )


def _results() -> str:
    schema = example_schema()
    interface = schema.type_map["WriteError"]
    assert isinstance(interface, GraphQLInterfaceType)
    rows = []
    for each in sorted(schema.get_possible_types(interface), key=lambda each: each.name):
        names = [name for name in each.fields if not name.startswith("current")]
        names += ["current"] if "current" in each.fields else []
        rows.append((code(each.name), linked(each.description or ""), ", ".join(map(code, names))))
    return table(("member", "meaning", "fields"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "codes": _codes,
    "results": _results,
    **{f"error {name}": partial(_details, name) for name in CODES},
}
