"""@collection: the collection, the plural name, the version field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.compiler.validation.collections import _MAXIMUM_BYTES
from revstream.model.definition import Entity, HistoryKind, Storage
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "") { # !
          id: ID! name: String }
        """,
        "Product",
        "a collection's name cannot be empty",
        "name another collection",
        id="an empty collection",
    ),
    pytest.param(
        """
        type Product @collection(name: "pro$ducts") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection\'s name "pro$ducts" has $, which MongoDB does not allow',
        "name another collection",
        id="a collection with a dollar",
    ),
    pytest.param(
        """
        type Product @collection(name: "pro\\u0000ducts") { # !
          id: ID! name: String }
        """,
        "Product",
        ('the collection\'s name "pro\\0ducts" has a NUL character, which MongoDB does not allow'),
        "name another collection",
        id="a collection with NUL",
    ),
    pytest.param(
        """
        type Product @collection(name: ".products") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection\'s name ".products" has an empty part beside a dot',
        "name another collection",
        id="a collection that begins with a dot",
    ),
    pytest.param(
        """
        type Product @collection(name: "products.") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection\'s name "products." has an empty part beside a dot',
        "name another collection",
        id="a collection that ends with a dot",
    ),
    pytest.param(
        """
        type Product @collection(name: "shop..products") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection\'s name "shop..products" has an empty part beside a dot',
        "name another collection",
        id="a collection with two dots",
    ),
    pytest.param(
        """
        type Product @collection(name: "system.views") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection "system.views" would be MongoDB\'s own: it begins with "system."',
        "name another collection",
        id="MongoDB's collection",
    ),
    pytest.param(
        """
        type Product @collection(name: "revstream.leases") { # !
          id: ID! name: String }
        """,
        "Product",
        (
            'the collection "revstream.leases" would be revstream\'s own: it begins with '
            '"revstream."'
        ),
        "name another collection",
        id="revstream's collection",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Thing @collection(name: "products", plural: "things") { # !
          id: ID! name: String }
        """,
        "Thing",
        'the collection "products" already belongs to Product',
        "name another collection, or remove one of the types",
        id="one collection for two types",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Old @collection(name: "products.versions") { # !
          id: ID! name: String }
        """,
        "Old",
        'the collection "products.versions" is used by revstream for the versions of Product',
        "remove the type; the API serves the versions of Product without it",
        id="the archive of another",
    ),
    pytest.param(
        """
        type Plan @collection(name: "products.drafts") { # !
          id: ID! name: String }
        type Product @collection(name: "products") { id: ID! name: String }
        """,
        "Plan",
        'the collection "products.drafts" is used by revstream for the drafts of Product',
        "remove the type; the API serves the drafts of Product without it",
        id="the drafts of another",
    ),
    pytest.param(
        """
        type Product @collection(name: "2020") { # !
          id: ID! name: String }
        """,
        "Product",
        'no name for the list can be derived from the collection "2020"',
        'give one with @collection(plural: "…")',
        id="a collection that makes no name",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", plural: "all products") { # !
          id: ID! name: String }
        """,
        "Product",
        'the plural "all products" is not a GraphQL name',
        "write letters, digits and _ only, beginning with a letter",
        id="a plural that is no name",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", plural: "__products") { # !
          id: ID! name: String }
        """,
        "Product",
        'the plural "__products" is not a GraphQL name',
        "write letters, digits and _ only, beginning with a letter",
        id="a plural of GraphQL's",
    ),
    pytest.param(
        """
        type Product @collection(name: "product") { # !
          id: ID! name: String }
        """,
        "Product",
        'one document and the list would both be called "product"',
        ('name the list with @collection(plural: "productList"), or another plural'),
        id="a plural that equals the singular",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", version: "") { # !
          id: ID! name: String }
        """,
        "Product",
        'the version field is "": a field\'s name in MongoDB cannot be empty',
        "name the field that counts writes, or write version: null where there is none",
        id="an empty version field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", version: "meta.version") { # !
          id: ID! name: String }
        """,
        "Product",
        (
            'the version field is "meta.version": a name with a dot is read as a path into '
            "an embedded document"
        ),
        "name the field that counts writes, or write version: null where there is none",
        id="a version field with a dot",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", version: "_id") { # !
          id: ID! name: String }
        """,
        "Product",
        'the version field is "_id": "_id" is taken',
        "name the field that counts writes, or write version: null where there is none",
        id="_id as the version field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products:1/4", plural: "things") { # !
          id: ID! name: String }
        """,
        "Product",
        'the collection\'s name "products:1/4" ends like the name of a partition',
        "name another collection",
        id="a collection that is named as a partition",
    ),
    *(
        pytest.param(
            f"""
            type Product @collection(name: "products", partitions: {count}) {{ # !
              id: ID! name: String }}
            """,
            "Product",
            f"partitions: {count}, expected 1 to 64",
            "write a number from 1 to 64",
            id=f"{count} partitions",
        )
        for count in (0, 65, -1)
    ),
    pytest.param(
        """
        type Product @collection(name: "products", partitions: "4") { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection(partitions: "4"): expected a whole number',
        "write it in digits, without quotes",
        id="partitions that are no number",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def product(arguments: str) -> Entity:
    """Return a small entity with these arguments of `@collection`."""
    text = f"type Product @collection({arguments}) {{ id: ID! name: String }}"
    return read_model(text).entity("Product")


def test_defaults() -> None:
    """Only the collection's name is required."""
    entity = product('name: "order_lines"')
    assert entity.collection == "order_lines"
    assert (entity.singular, entity.plural, entity.version) == ("product", "orderLines", "version")
    assert (entity.history, entity.storage) == (HistoryKind.ARCHIVE, Storage.FULL)
    assert entity.partitions == 1


def test_every_argument_is_kept() -> None:
    """Each argument of `@collection` is a property of the entity."""
    entity = product('name: "p", plural: "goods", version: "rev", storage: DELTA')
    assert (entity.collection, entity.plural, entity.version) == ("p", "goods", "rev")
    assert entity.storage is Storage.DELTA
    assert product('name: "p", plural: "goods", history: DELTAS').history is HistoryKind.DELTAS
    assert [product(f'name: "p", partitions: {n}').partitions for n in (1, 64)] == [1, 64]


def test_a_null_version_field_disables_counting() -> None:
    """Documents without a version field are not counted."""
    assert product('name: "products", version: null').version is None


@pytest.mark.parametrize("name", ["shop.products", "products.old", "revstream", "größen", "a b"])
def test_unusual_collection_names_are_accepted(name: str) -> None:
    """Any name that MongoDB accepts is valid; a plural is required if none can be derived."""
    assert product(f'name: "{name}", plural: "things"').collection == name


def test_a_collection_name_has_a_maximum_length(mistake: Callable[[str], ModelError]) -> None:
    """MongoDB limits the bytes of database and collection name together."""
    name = "é" * (_MAXIMUM_BYTES // 2)
    assert product(f'name: "{name}", plural: "things"').collection == name
    error = mistake(
        f'type Product @collection(name: "{name}é", plural: "a") {{ id: ID! name: Int }} # !'
    )
    assert error.problem == "bytes of the collection's name: 184, maximum is 182"


def test_an_archive_of_no_entity_may_be_an_entity() -> None:
    """A name with `.versions` is reserved only for the archive of another entity's collection."""
    entity = product('name: "drafts.versions", plural: "things"')
    assert entity.collection == "drafts.versions"
