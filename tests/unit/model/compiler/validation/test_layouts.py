"""@layout: names of a self-versioned collection's fields, and combinations that are invalid."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import LayoutFields
from revstream.model.errors import ModelError


def product(history: str, layout: str = "", field: str = "name: String", more: str = "") -> str:
    """Return a model with its mistake on the line of the field, of @layout, or of @collection."""
    mark = "" if "# !" in field + layout else " # !"
    return f"""
        type Product @collection(name: "products", version: "v", history: {history}{more}){mark}
          {layout}
        {{
          id: ID!
          {field}
        }}
        """


def layout(history: str, text: str = "") -> LayoutFields | None:
    return read_model(product(history, text)).entity("Product").layout


def test_each_layout_has_default_field_names() -> None:
    """The layout `ARCHIVE` has no field names."""
    assert layout("ARCHIVE") is None
    assert layout("DOCUMENT_PER_VERSION") == layout("CURRENT_FLAG") == LayoutFields()
    assert layout("EMBEDDED") == LayoutFields(current="current", previous="prev")
    assert layout("SEPARATE") == LayoutFields(previous="products.previous")


def test_field_names_can_be_set() -> None:
    """Each layout takes the names that it uses."""
    given = '@layout(document: "of", unset: "without", whole: "all", deleted: "gone", at: "t")'
    expected = LayoutFields(document="of", unset="without", whole="all", deleted="gone", at="t")
    assert layout("DELTAS", given) == expected
    assert layout("SEPARATE", '@layout(previous: "old")') == LayoutFields(previous="old")
    # A field inside `current` may have the same name.
    assert layout("EMBEDDED", '@layout(current: "name")') == LayoutFields(current="name")


MISTAKES = [
    pytest.param(
        product("ARCHIVE", '@layout(document: "of") # !'),
        "@layout: history is ARCHIVE, expected another layout",
        "remove it, or set the layout: @collection(history: CURRENT_FLAG)",
        id="names of no layout",
    ),
    pytest.param(
        product("EMBEDDED", '@layout(document: "of") # !'),
        "@layout(document:): not used with history: EMBEDDED",
        "remove it, or choose from current, previous, deleted, at",
        id="a name that the layout has not",
    ),
    pytest.param(
        product("CURRENT_FLAG", '@layout(current: "name") # !'),
        'the layout\'s name for current is "name": it is also the field "name"',
        'name the field that your programs use: @layout(current: "…")',
        id="the name of a field",
    ),
    pytest.param(
        product("CURRENT_FLAG", '@layout(current: "docId") # !'),
        'the layout\'s name for current is "docId": it is also the name for document',
        'name the field that your programs use: @layout(current: "…")',
        id="a name twice",
    ),
    pytest.param(
        product("DELTAS", '@layout(document: "v") # !'),
        "the layout's name for document is \"v\": it is also the version's number",
        'name the field that your programs use: @layout(document: "…")',
        id="the name of the number",
    ),
    pytest.param(
        product("CURRENT_FLAG", '@layout(current: "_copies") # !'),
        'the layout\'s name for current is "_copies": it is also where revstream stores the '
        "sources of copies",
        'name the field that your programs use: @layout(current: "…")',
        id="where copies are kept",
    ),
    pytest.param(
        product("EMBEDDED", '@layout(previous: "a.b") # !'),
        'the layout\'s name for previous is "a.b": a name with a dot is read as a path into an '
        "embedded document",
        'name the field that your programs use: @layout(previous: "…")',
        id="a path",
    ),
    pytest.param(
        product("DOCUMENT_PER_VERSION", field="docId: String"),
        'the layout\'s name for document is "docId": it is also the field "docId"',
        'name the field that your programs use: @layout(document: "…")',
        id="a field with the name of the layout's",
    ),
    pytest.param(
        product("SEPARATE", '@layout(previous: "products") # !'),
        'the collection "products" belongs to Product',
        'name the collection of previous versions: @layout(previous: "…")',
        id="the collection itself",
    ),
    pytest.param(
        product("SEPARATE", '@layout(previous: "products.versions") # !'),
        'the collection "products.versions" is used by revstream for products',
        'name the collection of previous versions: @layout(previous: "…")',
        id="one of revstream's own",
    ),
    pytest.param(
        product("DELTAS", more=", storage: DELTA"),
        "storage says how revstream's own archive keeps contents, and with history: DELTAS it "
        "keeps none",
        "remove storage",
        id="a storage",
    ),
    pytest.param(
        product("DELTAS").replace('version: "v"', "version: null"),
        "version: null, expected the field of the version numbers, which history: DELTAS requires",
        'name the field that has them: version: "v"',
        id="no number",
    ),
    pytest.param(
        product("EMBEDDED", field="sequence: Long! @fence # !"),
        "@fence: history is EMBEDDED, expected ARCHIVE: an event is compared and applied "
        "in one write, but a layout needs several",
        "remove @fence",
        id="a fence",
    ),
    pytest.param(
        product("CURRENT_FLAG", field="sku: String @unique # !"),
        "@unique: history is CURRENT_FLAG, expected ARCHIVE: each version is a document, "
        "and versions of one document have equal values",
        "remove @unique",
        id="a unique field",
    ),
    pytest.param(
        product("DELTAS", '@index(fields: ["name"], unique: true) # !'),
        "with history: DELTAS each version is a document, and versions of one document have "
        "equal values",
        "remove unique",
        id="a unique index",
    ),
]


@pytest.mark.parametrize(("text", "problem", "mend"), MISTAKES)
def test_an_error_has_its_line_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, problem: str, mend: str
) -> None:
    """The error names the problem and its fix."""
    error = mistake(text)
    assert (error.problem, error.mend) == (problem, mend)


def test_layouts_with_separate_current_documents_allow_unique_indexes() -> None:
    """The current state is in a document of its own in these layouts."""
    for history in ("EMBEDDED", "SEPARATE"):
        model = read_model(product(history, field="sku: String @unique"))
        assert model.entity("Product").indexes[0].unique


def test_an_embedded_type_has_no_layout(mistake: Callable[[str], ModelError]) -> None:
    """An embedded type has no collection."""
    text = """
        type Product @collection(name: "products") { id: ID! part: Part }
        type Part @layout { # !
          name: String }
        """
    assert mistake(text).problem == "@layout: Part is embedded, expected an entity"


def test_two_entities_do_not_share_their_previous_versions(
    mistake: Callable[[str], ModelError],
) -> None:
    """The version numbers of both would be mixed."""
    text = """
        type A @collection(name: "aa", history: SEPARATE) @layout(previous: "p") { id: ID! n: Int }
        type B @collection(name: "bb", history: SEPARATE) @layout(previous: "p") { # !
          id: ID! n: Int }
        """
    assert mistake(text).problem == 'the collection "p" has the versions of A'
