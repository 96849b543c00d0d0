"""Schemas of the Pydantic models and Beanie documents of a Python module, which is run.

The only module that imports pydantic, an optional dependency: the program's own is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from bson import Decimal128, Int64, ObjectId
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from revstream.model.importing.collection_schema import SourceError
from revstream.model.importing.python_models import PythonModel

__all__ = ["read_python_models"]

# How programs describe an ObjectId as text, whichever letters they allow.
_OBJECT_ID = re.compile(r"\^?\[[0-9a-fA-F-]+\]\{24\}\$?")
_CLASSES = {ObjectId: "objectId", Decimal128: "decimal", Int64: "long"}
# Of Beanie, if the module has imported it.
_LIBRARY = "beanie"


def read_python_models(path: Path) -> list[PythonModel]:
    """Run a module, and return the models that it has.

    Raises:
        SourceError: It cannot be run.
    """
    try:
        # Output is for the result.
        with contextlib.redirect_stdout(sys.stderr):
            module = _run(path)
    except (Exception, SystemExit) as error:
        raise SourceError(
            f"{path}: {type(error).__name__}: {error}, expected a module that runs; run revstream "
            "in the environment of your program"
        ) from error
    beanie = sys.modules.get(_LIBRARY)
    classes = dict.fromkeys(each for each in vars(module).values() if isinstance(each, type))
    models = [each for each in classes if _is_model(each, beanie)]
    return [_model(each, beanie) for each in models if not _is_abstract(each, models)]


def _run(path: Path) -> ModuleType:
    """Import a file under the name that it has in its package."""
    root, name = path.resolve().parent, path.stem
    if not (root / "__init__.py").exists():
        with _importing_from(root):
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            # Types that are named as text are looked up there.
            sys.modules.setdefault(name, module)
            spec.loader.exec_module(module)
            return module
    parts = [] if name == "__init__" else [name]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    with _importing_from(root):
        return importlib.import_module(".".join(parts))


@contextlib.contextmanager
def _importing_from(root: Path) -> Iterator[None]:
    """Find modules in a folder, and in the current one, as `python -m` does."""
    before = list(sys.path)
    sys.path[:0] = [str(root), str(Path.cwd())]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


def _is_model(found: Any, beanie: ModuleType | None) -> bool:
    """Return whether a class is one of documents, and not of a library."""
    if not issubclass(found, BaseModel):
        return False
    if found.__module__.partition(".")[0] in (_LIBRARY, "pydantic"):
        return False
    if beanie is not None and issubclass(found, beanie.Document):
        return True
    return _settings(found, "name") is not None or any(
        _stored_name(found, each) == "_id" for each in found.model_fields
    )


def _is_abstract(found: type[BaseModel], models: list[type[BaseModel]]) -> bool:
    """Return whether a class only has what others inherit: it names no collection."""
    derived = any(each is not found and issubclass(each, found) for each in models)
    named = _settings(found, "name") is not None or _settings(found, "is_root")
    return derived and not named


def _model(found: type[BaseModel], beanie: ModuleType | None) -> PythonModel:
    schema = _schema(found)
    notes = []
    if beanie is not None:
        for name, field in found.model_fields.items():
            stored = _stored_name(found, name)
            kinds = {typing.get_origin(each) or each for each in _parts(field.annotation)}
            if beanie.BackLink in kinds:
                schema["properties"].pop(stored, None)
            elif beanie.Link in kinds:
                schema["properties"][stored] = {}
                notes.append(
                    f'not translated: "{stored}" is a Link, which Beanie stores as a DBRef; '
                    "references are by ids"
                )
    for name, field in found.model_fields.items():
        if field.exclude:
            schema["properties"].pop(_stored_name(found, name), None)
    base = _collection_class(found, beanie)
    name = _settings(base, "name")
    documents = beanie is not None and issubclass(found, beanie.Document)
    return PythonModel(
        name=found.__name__,
        base=base.__name__,
        collection=name if isinstance(name, str) else base.__name__ if documents else None,
        schema=schema,
        unique=frozenset(_unique(found)),
        notes=tuple(notes),
    )


def _schema(found: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a class, with its properties at the top.

    Raises:
        SourceError: The class has none, for example because a type in it is not defined.
    """
    try:
        schema = found.model_json_schema(schema_generator=_StoredSchema)
    except Exception as error:
        raise SourceError(
            f"{found.__name__}: {type(error).__name__}: {error}, expected a class that is complete"
        ) from error
    # A class that refers to itself is in the definitions.
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return {"properties": {}, **schema, **schema.get("$defs", {}).get(name, {})}


def _collection_class(found: type[BaseModel], beanie: ModuleType | None) -> type[BaseModel]:
    """Return the class that names the collection: of Beanie's classes, the root above it."""
    if beanie is not None and issubclass(found, beanie.Document):
        for each in reversed(found.__mro__):
            if issubclass(each, beanie.Document) and _settings(each, "is_root"):
                return each
    return found


def _settings(found: type[BaseModel], name: str) -> Any:
    """Return a setting of the class `Settings` in a model or its bases."""
    return getattr(getattr(found, "Settings", None), name, None)


def _stored_name(found: type[BaseModel], name: str) -> str:
    field = found.model_fields[name]
    return field.serialization_alias or field.alias or name


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation, and all that is in it."""
    yield annotation
    for each in typing.get_args(annotation):
        yield from _parts(each)


def _unique(found: type[BaseModel]) -> Iterator[str]:
    """Yield the stored names of the fields with `Annotated[…, Indexed(unique=True)]`, and of those
    with a unique index in the settings.
    """
    for name, field in found.model_fields.items():
        for each in field.metadata:
            # Of Beanie: a pair of the direction and the options of the index.
            values = dataclasses.astuple(each) if dataclasses.is_dataclass(type(each)) else ()
            if any(isinstance(one, tuple) and _is_unique(one[-1]) for one in values):
                yield _stored_name(found, name)
    for each in _settings(found, "indexes") or ():
        # IndexModel of PyMongo.
        options = getattr(each, "document", {})
        if _is_unique(options) and len(options["key"]) == 1:
            yield from options["key"]


def _is_unique(options: Any) -> bool:
    return (
        isinstance(options, dict)
        and options.get("unique") is True
        and "partialFilterExpression" not in options
    )


class _StoredSchema(GenerateJsonSchema):
    """JSON schema with the types that MongoDB stores; types without one are of any kind."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {"bsonType": "decimal"}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        return {"bsonType": "date"}

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return {"bsonType": "day"}

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        return {}

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return {"bsonType": "number"}

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:
        return {"bsonType": "uuid"}

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"bsonType": "binData"}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and _OBJECT_ID.fullmatch(pattern):
            return {"bsonType": "objectId"}
        return {"bsonType": "string"}

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        # Text that is parsed: what is in it is stored.
        return {}

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        kind = _CLASSES.get(schema["cls"])
        return {} if kind is None else {"bsonType": kind}

    def handle_invalid_for_json_schema(
        self, schema: core_schema.CoreSchema, error_info: str
    ) -> JsonSchemaValue:
        return {}
