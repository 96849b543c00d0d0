"""Python modules with Pydantic models, which `revstream init --from` runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from revstream.gql.cli.init import import_schema
from revstream.model.compiler.loader import read_model

USERS = """
from __future__ import annotations
from typing import Annotated, Literal
from bson import ObjectId
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json
from .parts import Address

print("loaded")
Text = Annotated[str, BeforeValidator(str)]
Hex = Annotated[str, Field(pattern="^[0-9a-f]{24}$")]

class Stored(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    id: Text | None = Field(alias="_id", default=None)

class User(Stored):
    name: str
    address: Address
    later: Later | None = None
    boss_id: Hex | None = None
    parent_id: ObjectId | None = None
    check: type[int] | None = None

class BlogPost(Stored):
    class Settings:
        name = "blog_posts"
    user_id: ObjectId
    editor_user_ids: list[ObjectId]

class Later(BaseModel):
    n: int

class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str

class Cash(BaseModel):
    kind: Literal["cash"] = "cash"

class Bill(Stored):
    parent: Bill | None = None
    details: Json = None
    paid: Annotated[Card | Cash, Field(discriminator="kind")]
    parts: list[Annotated[Card | Cash, Field(discriminator="kind")]] = []
    other: Annotated[Card | Cash, Field(discriminator="kind")] | None = None
    either: Card | Cash

class _Hidden:
    pass
"""

INCOMPLETE = """
from pydantic import BaseModel, Field
class Odd(BaseModel):
    id: "Missing" = Field(alias="_id")
"""


def written(folder: Path, **files: str) -> Path:
    """Write modules; returns the folder."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


def test_pydantic_models_of_a_package_become_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fields with the alias _id make a class one of documents; the module's output is no result."""
    package = tmp_path / "some_program"
    package.mkdir()
    address = "from pydantic import BaseModel\nclass Address(BaseModel):\n    city: str\n"
    written(package, __init__="", users=USERS, parts=address)
    path_before = list(sys.path)
    text = import_schema(str(package / "users.py"), None, [])
    assert sys.path == path_before
    assert capsys.readouterr().out == ""
    model = read_model(text)
    assert {each.collection for each in model.entities} == {"users", "blog_posts", "bills"}
    for name in ("BillPaid", "BillPart", "BillOther"):
        assert f'union {name} @discriminator(field: "kind") = ' in text
    assert "type BillEither {\n  kind: BillEitherKind\n  number: String\n}" in text
    assert "# User does not say its collection: check the name" in text
    for line in (
        "  id: ObjectID!",
        "  address: UserAddress!",
        "  later: UserLater",
        "  bossId: ObjectID",
        '  parentId: ID @stored(as: "parent_id")',
        "  parent: User @reference",
        "  user: User @reference",
        "  editorUsers: [User!]! @reference",
        "  check: JSON",
        "  parent: JSON\n  details: JSON",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import nothing_such", "ModuleNotFoundError: No module named 'nothing_such', expected a"),
        ("raise SystemExit(3)", "SystemExit: 3, expected a module that runs"),
        ("def", "SyntaxError"),
        (INCOMPLETE, "(?s)Odd: .*, expected a class that is complete"),
        ("from pydantic import BaseModel", "no models of collections, expected documents of"),
    ],
)
def test_a_module_without_models_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """The message has the module's own error, or what a model needs."""
    path = written(tmp_path, odd_models=content) / "odd_models.py"
    with pytest.raises(click.ClickException, match=message):
        import_schema(str(path), None, [])


def test_a_missing_pydantic_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency of revstream: the program's own is used."""
    monkeypatch.delitem(sys.modules, "revstream.gql.cli.pydantic_schemas", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    path = written(tmp_path, no_models="") / "no_models.py"
    with pytest.raises(click.ClickException, match="pydantic is not installed, expected the"):
        import_schema(str(path), None, [])


def test_other_files_are_refused(tmp_path: Path) -> None:
    """The message names what can be read."""
    written(tmp_path, some="")
    for name, reason in (("none.py", "no such file"), ("some.txt", "no such file")):
        with pytest.raises(click.ClickException, match=f"{reason}, expected the folder of an App"):
            import_schema(str(tmp_path / name), None, [])
