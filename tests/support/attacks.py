"""Documents that are small to send and expensive to execute; most of them must be refused."""

from __future__ import annotations

from typing import Any

__all__ = ["ATTACKS", "HARMLESS", "product"]


def product(body: str) -> str:
    return f'{{ product(id: "p") {{ {body} }} }}'


def many(text: str, count: int) -> str:
    """Repeat a text `count` times, with its number in place of `#`."""
    return " ".join(text.replace("#", str(number)) for number in range(count))


def chain(length: int, spreads: int = 2) -> str:
    """Return fragments that stand for spreads^length fields."""
    fragments = (
        f"fragment F{n} on Product {{ {f'...F{n + 1} ' * spreads}}} " for n in range(length)
    )
    return f"{product('...F0')} {''.join(fragments)} fragment F{length} on Product {{ id }}"


def ring(length: int) -> str:
    fragments = (
        f"fragment F{n} on Product {{ supplier {{ products {{ nodes {{ ...F{(n + 1) % length} "
        "} } } } "
        for n in range(length)
    )
    return f"{product('...F0')} {''.join(fragments)}"


def all_to_all(length: int) -> str:
    every = many("...F#", length)
    fragments = (
        f"fragment F{n} on Product {{ {every.replace(f'...F{n}', 'id')} }} " for n in range(length)
    )
    return f"{product('...F0')} {''.join(fragments)}"


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"and": [value]}
    return value


def deep(opening: str, depth: int, inner: str = "id") -> str:
    return opening * depth + inner + " }" * (depth * opening.count("{"))


def interfaces(depth: int) -> str:
    """Return nested interface fields beside the fields of many types."""
    beside = "".join(f"... on {each} {{ node: nodeId }} " for each in ("Product", "Supplier"))
    return f'{{ node(nodeId: "x") {{ {deep(f"... on Node {{ {beside}", depth, "nodeId")} }} }}'


PAGES = "supplier { products(first: 1000) { nodes { "
TYPES = "types { fields { name args { name type { name } } type { name ofType { name } } } }"
WHERE = "query($w: ProductWhere) { products(where: $w) { nodes { id } } }"
AS_OF = '{ productsAsOf(asOf: {time: "#"}) { nodes { id } } }'

ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "fragments within fragments, 1 KB": (chain(22), {}),
    "fragments within fragments, 12 KB": (chain(270), {}),
    "ten each, 100 KB": (chain(1200, 10), {}),
    "a fragment that spreads itself": (ring(1), {}),
    "a ring of fragments": (ring(150), {}),
    "each spreads each, 5 KB": (all_to_all(25), {}),
    "each spreads each, 100 KB": (all_to_all(115), {}),
    "one field again and again": (product("id " * 2900), {}),
    "one field again and again, 100 KB": (product("id " * 33_000), {}),
    "one object again and again": (product("supplier { id } " * 700), {}),
    "one object again and again, 100 KB": (product("supplier { id } " * 6000), {}),
    "aliases": (product(many("a#: id", 900)), {}),
    "aliases of the root": ("{" + many('a#: product(id: "p") { id }', 270) + "}", {}),
    "names that are none": (product(many("supplierNamf#", 1900)), {}),
    "types that are none": (product(many("... on Produkt# { id }", 480)), {}),
    "fragments that are none": (product(many("...F#", 1400)), {}),
    "fragments that nobody spreads": (
        product("id") + many("fragment F# on Product { id }", 400),
        {},
    ),
    "a name of 95 KB": (f"{{ {'a' * 95_000} }}", {}),
    "a number of 95 KB": (f"{{ products(first: {'9' * 95_000}) {{ nodes {{ id }} }} }}", {}),
    "a moment of 95 KB": (AS_OF.replace("#", "9" * 95_000), {}),
    "directives": (product("id " + "@include(if: true) " * 480), {}),
    "deep": (product(deep("supplier { products { nodes { ", 60)), {}),
    "deep for nothing": (product(deep("... { ", 1000)), {}),
    "deep lists": (
        f"{{ products(where: {'{and: [' * 95}{']}' * 95}) {{ nodes {{ id }} }} }}",
        {},
    ),
    "brackets, 100 KB": ("{" * 99_000, {}),
    "quotes, 100 KB": ('"' * 99_000, {}),
    "text that does not end, again and again": ('"""\n\\' * 19_000, {}),
    "a comment of 1 MB": ("#" * 1_000_000, {}),
    "operations": (many("query Q# { streams { name } }", 400), {}),
    "operations without names": (
        many(product("...F0"), 100) + chain(22).replace(product("...F0"), ""),
        {},
    ),
    "variables": (f"query({many('$v#: Int', 700)}) {{ streams {{ name }} }}", {}),
    "pages within pages": (product(deep(PAGES, 6)), {}),
    "a page of pages": (
        "{ products(first: 1000) { nodes { history(first: 1000) { nodes { id } } } } }",
        {},
    ),
    "introspection again and again": ("{" + many(f"a#: __schema {{ {TYPES} }}", 40) + "}", {}),
    "introspection in circles": (
        f"{{ __schema {{ types {{ {deep('fields { type { ', 8, 'name')} }} }} }}",
        {},
    ),
    "interfaces beside types": (interfaces(60), {}),
    "deep variables": (WHERE, {"w": nested(450)}),
    "long lists": (WHERE, {"w": {"id": {"in": ["p"] * 150_000}}}),
    "one large filter at many places": (
        "query($w: ProductWhere) {"
        + many("a#: products(where: $w, first: 1) { nodes { id } }", 50)
        + "}",
        {"w": {"or": [{"stock": {"eq": number}} for number in range(10_000)]}},
    ),
    "filters within a filter at many places": (
        "query($w: ProductWhere!) {"
        + many("a#: products(where: {and: [$w, $w]}, first: 1) { nodes { id } }", 50)
        + "}",
        {"w": {"or": [{"stock": {"eq": number}} for number in range(240)]}},
    ),
    "many mutations": (
        f"mutation {{ {many('m#: deleteProduct(id: 5) { __typename }', 60)} }}",
        {},
    ),
}
HARMLESS = {"one object again and again", "interfaces beside types"}
"""Documents within the limits; they take no longer than ordinary documents."""
