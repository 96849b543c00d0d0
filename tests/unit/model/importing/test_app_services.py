"""Exports of Atlas App Services, written from its documented format, become models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Scalar
from revstream.model.importing.app_services import app_services_text
from revstream.model.importing.collection_schema import SourceError

Files = dict[str, Any]


def exported(folder: Path, files: Files) -> Path:
    """Write an export; its paths begin in the data source."""
    for name, content in files.items():
        path = folder / "data_sources" / "mongodb-atlas" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return folder


def schema(title: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "title": title,
        "bsonType": "object",
        "required": ["_id", *required],
        "properties": {
            name: {"bsonType": each} if isinstance(each, str) else each
            for name, each in {"_id": "objectId", **properties}.items()
        },
    }


def related(target: str, *, lists: bool = False, key: str = "_id") -> dict[str, Any]:
    ref = f"#/relationship/mongodb-atlas/shop/{target}"
    return {"ref": ref, "foreign_key": key, "is_list": lists}


READ_ALL = {"roles": [{"name": "all", "apply_when": {}, "read": True}]}
LINE = {"bsonType": "object", "properties": {"product": {"bsonType": "objectId"}}}
SHOP: Files = {
    "config.json": {"name": "mongodb-atlas", "type": "mongodb-atlas"},
    "default_rule.json": READ_ALL,
    "shop/Product/schema.json": {
        "title": "Product",
        "bsonType": "object",
        "properties": {
            "_id": {"bsonType": "uuid"},
            "name": {"bsonType": "string"},
            "kind": {"bsonType": "string", "enum": ["new-one", "used"]},
            "prices": {"bsonType": "array", "items": {"bsonType": "decimal"}},
            "any": {"bsonType": "mixed"},
            "and": {"bsonType": "string"},
        },
    },
    "shop/Product/rules.json": {
        "roles": [{"name": "mine", "apply_when": {"and": "%%user.id"}, "read": True}]
    },
    "shop/orders/schema.json": schema(
        "PurchaseOrder", ["total", "customer_id"], total="double", customer_id="objectId",
        lines={"bsonType": "array", "items": LINE}, friends={"bsonType": "array",
        "items": {"bsonType": "objectId"}}, code="string",
    ),
    "shop/orders/relationships.json": {
        "customer_id": related("customers"),
        "friends": related("customers", lists=True),
        "lines.[].product": related("Product"),
        "code": related("customers", key="code"),
        "gone": related("customers"),
    },
    "shop/customers/schema.json": schema("Customer", [], name="string"),
    "shop/empty/schema.json": {},
}  # fmt: skip


def test_types_relations_and_rules_of_an_export_become_a_model(tmp_path: Path) -> None:
    """Titles name the types, default rules hold, and what does not translate is a comment."""
    text = app_services_text(exported(tmp_path, SHOP), None, [])
    model = read_model(text)
    product = model.entity("Product")
    id_, name, kind = (product.field(each) for each in ("id", "name", "kind"))
    assert id_ is not None
    assert id_.stored_scalar is Scalar.UUID
    assert name is not None
    assert not name.required
    assert kind is not None
    assert 'NEW_ONE @stored(as: "new-one")' in text
    assert "prices: [Decimal!]" in text
    assert "any: JSON" in text
    # A field that the API renames is renamed in the rule.
    assert product.access is not None
    assert product.access.rows == "{ productAnd: { eq: $sub } }"
    order = model.entity("PurchaseOrder")
    assert [(each.name, each.target) for each in order.references] == [
        ("customer", "Customer"),
        ("friends", "Customer"),
    ]
    assert 'friendIds: [ID!] @stored(as: "friends")' in text
    assert "friends: [Customer!]! @reference" in text
    total = order.field("total")
    assert total is not None
    assert total.required
    assert order.access is not None
    assert order.access.read is None
    assert order.access.write == ("nobody",)
    assert 'not translated: relationship "code"' in text
    assert (
        'not translated: "gone" refers to "customers", but the schema has no such field with an id'
        in text
    )
    assert "# Left out: empty: it has no schema." in text


def test_the_chosen_collections_of_a_database_are_read(tmp_path: Path) -> None:
    """Relations to the others are comments; an app with two databases needs a name."""
    folder = exported(tmp_path, SHOP | {"other/logs/schema.json": schema("Log", [], at="date")})
    with pytest.raises(SourceError, match=r"several databases .*name the database with --database"):
        app_services_text(folder, None, [])
    with pytest.raises(SourceError, match="'none': not in the export, which has other, shop"):
        app_services_text(folder, "none", [])
    assert "at: DateTime" in app_services_text(folder / "data_sources", "other", [])
    text = app_services_text(folder, "shop", ["orders"])
    assert 'not translated: "customer_id" refers to "customers", which is not here' in text
    assert [each.name for each in read_model(text).entities] == ["PurchaseOrder"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"shop/a/rules.json": {}}, "no schemas, expected data_sources/NAME/DATABASE"),
        ({"shop/a/schema.json": "{"}, "schema.json: .*, expected JSON"),
        ({"shop/a/schema.json": []}, "list, expected an object in JSON"),
        ({"shop/a/schema.json": {}}, "no schema.json with properties"),
    ],
)
def test_a_folder_that_is_no_export_is_refused(tmp_path: Path, files: Files, message: str) -> None:
    """The message names the file and what is expected."""
    with pytest.raises(SourceError, match=message):
        app_services_text(exported(tmp_path, files), None, [])
