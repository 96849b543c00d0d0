"""Loading of a whole model file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.model.errors import ModelError, ModelErrors

SHOP = Path(__file__).parents[4] / "schema.graphql"

TEN_MISTAKES = """
type Product
  @collection(nam: "products")
  @index(fields: ["pirce"]) {
  id: Decimal!
  sku: Sting! @unique
  price: Decimal! @stored(as: "$price")
  history: [String!]
  supplierId: Int
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String! @copy(of: "supplier.name")
}

type Supplier @collection(name: "suppliers") @access(read: []) {
  id: ObjectID!
  name: String
  products: [Product!]! @referencedBy(field: "suplierId")
}
"""


def test_ten_mistakes_are_ten_errors() -> None:
    """All errors are reported at once, in line order, each with its own fix."""
    with pytest.raises(ModelErrors) as caught:
        read_model(TEN_MISTAKES.strip("\n"), filename="shop.graphql")
    assert str(caught.value).splitlines() == [
        "shop.graphql has 10 errors:",
        (
            'shop.graphql:2: Product: @collection: unknown argument "nam"; mend: did you mean '
            '"name"?'
        ),
        (
            'shop.graphql:3: Product: @index: Product has no stored field "pirce"; mend: '
            'did you mean "price"?'
        ),
        (
            "shop.graphql:4: Product.id: an id cannot be Decimal; mend: choose from ID, "
            "ObjectID, String, Int, Long, UUID"
        ),
        ('shop.graphql:5: Product.sku: "Sting": unknown type; mend: did you mean "String"?'),
        (
            'shop.graphql:6: Product.price: it is stored as "$price": a name that begins '
            "with $ is read as an operator; mend: choose another name with @stored(as:)"
        ),
        (
            'shop.graphql:7: Product.history: "history" is a field of the API: the '
            "document's versions; mend: rename it: productHistory: [String!] "
            '@stored(as: "history")'
        ),
        (
            'shop.graphql:9: Product.supplier: @reference(by: "supplierId"): "supplierId" '
            'is Int, and the id of Supplier is ObjectID; mend: declare it "supplierId: ID"'
        ),
        (
            "shop.graphql:10: Product.supplierName: @copy: String!, expected a type that "
            'may be null, since the copy follows the write; mend: write "String"'
        ),
        (
            "shop.graphql:13: Supplier: @access(read: []): no roles, expected at least one; mend: "
            "name roles, or remove read to allow everyone"
        ),
        (
            'shop.graphql:16: Supplier.products: @referencedBy(field: "suplierId") names '
            'no field of Product; mend: did you mean "supplierId"?'
        ),
    ]


def test_errors_of_all_checks_are_reported_together() -> None:
    """No check is skipped because another one failed."""
    with pytest.raises(ModelErrors) as caught:
        read_model(TEN_MISTAKES + "interface Named { name: String }\n" + "type Lost { x: Int }\n")
    assert len(caught.value.errors) == 12


@pytest.mark.parametrize(
    "use",
    [
        '@index(fields: ["name"]) { id: ID!',
        '@access(rows: "{ name: { eq: $sub } }") { id: ID!',
        '{ id: ID! other: A @reference(by: "name")',
        '{ id: ID! others: [A!]! @referencedBy(field: "name")',
        '{ id: ID! otherId: ID other: A @reference(by: "otherId") a: Int @copy(of: "other.name")',
    ],
)
def test_a_field_of_an_unknown_type_is_reported_once(use: str) -> None:
    """Directives that use the field report no further error."""
    with pytest.raises(ModelErrors) as caught:
        read_model(f'type A @collection(name: "as") {use}\nname: Strng }}')
    (error,) = caught.value.errors
    assert str(error) == (
        'schema.graphql:2: A.name: "Strng": unknown type; mend: did you mean "String"?'
    )


def test_the_example_shop_is_a_model() -> None:
    """The repository's schema.graphql loads, with the entities of the contract."""
    model = read_model(SHOP.read_text())
    assert {"Product", "Supplier", "Reading"} <= {each.name for each in model.entities}
    fence = model.entity("Reading").fence
    assert fence is not None
    assert fence.name == "sequence"


def test_descriptions_are_kept() -> None:
    """Types, fields, references, enums and enum values keep their descriptions."""
    model = read_model(
        '''
        "A thing."
        type Product @collection(name: "products") {
          id: ID!
          """
          What it is
          called.
          """
          name: String
          "Where it came from."
          parent: Product @reference(by: "parentId")
          parentId: ID
          "What came of it."
          children: [Product!]! @referencedBy(field: "parentId")
          size: Size
        }
        "A part."
        type Size { width: Int }
        '''
    )
    product = model.entity("Product")
    assert product.description == "A thing."
    assert product.fields[1].description == "What it is\ncalled."
    assert product.references[0].description == "Where it came from."
    assert product.back_references[0].description == "What came of it."
    assert model.embedded("Size").description == "A part."


def test_the_id_comes_first_and_the_rest_as_written() -> None:
    """The id is the first field, wherever it was declared."""
    model = read_model('type P @collection(name: "ps") { b: Int a: Int id: ID! c: Int }')
    assert [each.name for each in model.entity("P").fields] == ["id", "b", "a", "c"]


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    """Files may have been written by editors on other systems."""
    text = '\ufefftype P @collection(name: "ps") {\r\n  id: ID!\r\n  a: Int\r\n}\r\n'
    assert read_model(text).entities[0].name == "P"


SYNTAX = [
    pytest.param(
        "",
        1,
        "the file declares nothing",
        ('declare a type: type Product @collection(name: "products") { id: ID! name: String }'),
        id="an empty file",
    ),
    pytest.param(
        "# nothing here\n",
        1,
        "the file declares nothing",
        ('declare a type: type Product @collection(name: "products") { id: ID! name: String }'),
        id="a file of comments",
    ),
    pytest.param(
        'type Product @collection(name: "products") {\n  id ID!\n}',
        2,
        "expected ':', found Name 'ID', in: id ID!",
        "write a field as name: Type",
        id="a missing colon",
    ),
    pytest.param(
        'type Product @collection(name: "products") {}',
        1,
        "expected Name, found '}', in: type Product @collection(name: \"products\") {}",
        "put at least one field or value between { and }",
        id="a type without fields in braces",
    ),
    pytest.param(
        'type Product @collection(name: "products") {\n  id: ID!',
        2,
        "the file ends in the middle of a type, in: id: ID!",
        "add the missing bracket, brace or quote",
        id="a missing brace",
    ),
    pytest.param(
        'type Product @collection(name: "products) {\n  id: ID!\n  name: String\n}',
        1,
        'unterminated string, in: type Product @collection(name: "products) {',
        "correct the line; the rest of the file is checked after that",
        id="an unterminated text",
    ),
    pytest.param(
        "type Product @collection(name: 'products') {\n  id: ID!\n  name: String\n}",
        1,
        (
            "unexpected single quote character ('), did you mean to use a double quote "
            "(\")?, in: type Product @collection(name: 'products') {"
        ),
        "correct the line; the rest of the file is checked after that",
        id="a single quote",
    ),
    pytest.param(
        'type Product @collection(name: "products") {\n  id: ID!\n  name: String\n}\n}',
        5,
        "unexpected '}', in: }",
        "correct the line; the rest of the file is checked after that",
        id="a brace too many",
    ),
    pytest.param(
        "enum Kind {\n  true\n}",
        2,
        "name 'true' is reserved and cannot be used for an enum value, in: true",
        "correct the line; the rest of the file is checked after that",
        id="a reserved enum value",
    ),
    pytest.param(
        "type Product { id: " + "[" * 3000,
        1,
        (
            "document is nested too deeply. Parsing aborted, in: type Product { id: "
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
        ),
        "correct the line; the rest of the file is checked after that",
        id="a nesting without end",
    ),
]


@pytest.mark.parametrize(("text", "line", "problem", "mend"), SYNTAX)
def test_a_syntax_error_is_one_error_with_its_line(
    text: str, line: int, problem: str, mend: str
) -> None:
    """A syntax error belongs to no type and shows its line."""
    with pytest.raises(ModelErrors) as caught:
        read_model(text)
    (error,) = caught.value.errors
    assert (error.type, error.field, error.line) == (None, None, line)
    assert (error.problem, error.mend) == (problem, mend)


WORDS = st.sampled_from(
    [
        *("type", "enum", "id", "ID!", "name", "String", "Int", "Product", "Size", "[Size!]!"),
        *("{", "}", ":", "!", "[", "]", "(", ")", "@", "=", "|", "&", "null", "true", "3", "JSON"),
        *('"products"', '"name"', '""', '"{ a: { eq: $b } }"', "@fence", "@unique"),
        *("@referencedBy(field:", "@index(fields:", "@access(rows:", "@stored(as:", "@sink(url:"),
        *('@collection(name: "products")', '@reference(by: "id")', '@copy(of: "a.b")'),
    ]
)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=40))
def test_any_text_is_a_model_or_has_errors(words: list[str]) -> None:
    """No other exception is ever raised."""
    errors: tuple[ModelError, ...] = ()
    model: Model | None = None
    try:
        model = read_model(" ".join(words))
    except ModelErrors as raised:
        errors = raised.errors
    assert isinstance(model, Model) or errors


LINES = st.sampled_from(
    [
        "id: ID!",
        "id: ObjectID!",
        "name: String",
        "name: String! @unique",
        "parentId: ID",
        "parentId: [ObjectID!]",
        'parent: A @reference(by: "parentId")',
        'parent: B! @reference(by: "id")',
        'parent: C @reference(by: "parent")',
        'children: [A!]! @referencedBy(field: "parentId")',
        'children: B @referencedBy(field: "name") @access(write: [])',
        'copied: String @copy(of: "parent.copied")',
        'copied: Int @copy(of: "parent.parentId")',
        "c: C!",
        "c: [C!]! @unique",
        "d: [[Missing]]",
        "count: Long @fence",
        'odd: JSON @stored(as: "_id") @access(read: ["a"])',
        "version: Int",
    ]
)
HEADS = [
    'type A @collection(name: "as") @index(fields: ["c.c.name", "parent"])',
    'type B @collection(name: "bs", version: null) @access(rows: "{ c: { c: { name: $x } } }")',
    'type C @sink(url: "")',
]


@settings(deadline=None)
@given(st.lists(st.lists(LINES, max_size=6), min_size=3, max_size=3))
def test_any_types_are_a_model_or_have_errors(bodies: list[list[str]]) -> None:
    """A check does not fail on input that another check has rejected."""
    text = "\n".join(
        f"{head} {{\n{chr(10).join(body)}\n}}" if body else head
        for head, body in zip(HEADS, bodies, strict=True)
    )
    errors: tuple[ModelError, ...] = ()
    model: Model | None = None
    try:
        model = read_model(text)
    except ModelErrors as raised:
        errors = raised.errors
    assert isinstance(model, Model) or errors
