"""Files of exported Mongoose models; the real Mongoose exports them in tests/clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.importing.collection_schema import SourceError
from revstream.model.importing.mongoose_models import mongoose_text


def exported(folder: Path, content: Any) -> Path:
    path = folder / "models.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def model(name: str, collection: str, properties: dict[str, Any], **facts: Any) -> dict[str, Any]:
    schema = {"required": ["_id"], "properties": {"_id": {"bsonType": "objectId"}, **properties}}
    return {"name": name, "collection": collection, "schema": schema, **facts}


# Mongoose 8 has null for each id that is no ObjectId.
OTHER = model(
    "Other", "others", {"_id": {"bsonType": ["string", "null"]}, "x": {"bsonType": "int"}}
)


def test_references_that_lead_nowhere_are_comments(tmp_path: Path) -> None:
    """References to other kinds of ids, and to models that are not exported, are not made."""
    ids = {"bsonType": ["objectId", "null"]}
    paths = [
        {"path": "a", "instance": "ObjectId", "ref": "Other"},
        {"path": "b", "instance": "ObjectId", "ref": "Gone"},
        {"path": "c", "instance": "ObjectId", "refPath": "kind"},
        {"path": "m.$*", "instance": "ObjectId", "ref": "Other"},
    ]
    thing = model("Thing", "things", {"a": ids, "b": ids, "c": ids}, paths=paths)
    text = mongoose_text(exported(tmp_path, [thing, OTHER]), [])
    assert [each.references for each in read_model(text).entities] == [(), ()]
    assert 'type Other @collection(name: "others", version: null) {\n  id: String!' in text
    assert '"a" refers to "others", but holds objectId, and "_id" there is string' in text
    assert '"b" refers to "Gone", which is not here' in text
    assert '"c" refers to several collections' in text


def test_models_of_one_collection_are_one_type(tmp_path: Path) -> None:
    """Fields of which the models say different things have a type that fits all of them."""
    text_of = {"bsonType": "string", "enum": ["a"]}
    inner = {"bsonType": "object", "properties": {"x": {"bsonType": "int"}}, "required": ["x"]}
    one = {"n": {"bsonType": "int"}, "kind": text_of, "in": inner, "same": text_of, "any": text_of}
    other = {
        "n": {"bsonType": ["decimal", "null"]},
        "kind": {"bsonType": "string", "enum": ["b"]},
        "in": {"bsonType": "object", "properties": {"y": {"bsonType": "bool"}}},
        "same": text_of,
        "any": {},
    }
    models = [model("One", "all", other, base="Base"), model("Base", "all", one)]
    text = mongoose_text(exported(tmp_path, models), [])
    assert "# documents of the models One, Base" in text
    for line in (
        "type Base @",
        "n: Decimal",
        "kind: BaseKind",
        "any: JSON",
        "x: Int\n  y: Boolean",
    ):
        assert line in text
    assert 'A @stored(as: "a")\n  B @stored(as: "b")' in text


def test_unique_indexes_and_models_that_cannot_be_served_are_left_out(tmp_path: Path) -> None:
    """Values without a type are not unique in the model; a model needs a field beside the id."""
    unique = [[{name: 1}, {"unique": True}] for name in ("any", "code")]
    fields = {"any": {}, "code": {"bsonType": "string"}}
    models = [model("A", "as", fields, indexes=unique), model("B", "bs", {"__v": {}})]
    text = mongoose_text(exported(tmp_path, models), [])
    assert "  any: JSON\n  code: String @unique\n" in text
    assert "# Left out: bs: it has no field but _id." in text
    with pytest.raises(SourceError, match="bs: no fields but _id, expected a schema with others"):
        mongoose_text(exported(tmp_path, models), ["bs"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "models.json: .*, expected JSON"),
        ([], "no list of objects with name, collection and schema"),
        ({"User": {}}, "no list of objects"),
        ([{"name": "A", "collection": "a", "schema": {}}], "no list of objects"),
        ([{**OTHER, "paths": [{"ref": "A"}]}], "no list of objects"),
        ([{**OTHER, "indexes": [{"a": 1}]}], "no list of objects"),
    ],
)
def test_a_file_without_models_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    """The message names the file and what is expected."""
    with pytest.raises(SourceError, match=message):
        mongoose_text(exported(tmp_path, content), [])


def test_a_collection_without_a_model_is_refused(tmp_path: Path) -> None:
    """The message has the names that there are."""
    with pytest.raises(SourceError, match=r"no models of the collections none, .* others"):
        mongoose_text(exported(tmp_path, [OTHER]), ["none"])
