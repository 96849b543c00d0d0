"""Example queries for models of different forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from graphql import OperationDefinitionNode, parse

from revstream.gql.endpoint.example_queries import examples_of
from revstream.model.definition import EmbeddedType, Entity, Field, Model, Scalar


def entity(name: str, *fields: Field) -> Entity:
    singular = name.lower()
    plural = singular + "s"
    id_ = Field(name="id", stored="_id", type=Scalar.ID, stored_scalar=Scalar.STRING)
    return Entity(
        name=name, singular=singular, plural=plural, collection=plural, fields=(id_, *fields)
    )


def plain(name: str, scalar: Scalar = Scalar.STRING) -> Field:
    return Field(name=name, stored=name, type=scalar)


LAMP = entity("Lamp", plain("watts", Scalar.INT), plain("name"))


def query(model: Model, name: str) -> str:
    return next(each.query for each in examples_of(model) if each.name == name)


def test_each_example_is_one_operation_of_its_own_name() -> None:
    """The name of an example is the title of its tab."""
    for example in examples_of(Model(entities=(LAMP,))):
        (operation,) = parse(example.query).definitions
        assert isinstance(operation, OperationDefinitionNode)
        assert operation.name is not None
        assert operation.name.value == example.name


def test_a_name_field_comes_first() -> None:
    """A person recognizes a document by its name."""
    assert "id name watts" in query(Model(entities=(LAMP,)), "History")


def test_only_fields_without_a_selection_are_chosen() -> None:
    """An embedded document would need fields of its own, and JSON may be large."""
    shape = EmbeddedType(name="Shape", fields=(plain("width", Scalar.FLOAT),))
    embedded = Field(name="shape", stored="shape", type="Shape")
    lamp = entity("Lamp", embedded, plain("notes", Scalar.JSON), plain("watts", Scalar.INT))
    text = query(Model(entities=(lamp,), embeddeds=(shape,)), "Live")
    assert "lamp { id watts }" in text


def test_an_entity_with_only_an_id_is_sufficient() -> None:
    """No field is needed beside the id."""
    assert "lamp { id }" in query(Model(entities=(entity("Lamp"),)), "Live")


def test_the_entity_with_most_fields_is_used() -> None:
    """The model has several entities."""
    assert "lamps(first" in query(
        Model(entities=(entity("Socket", plain("name")), LAMP)), "History"
    )


def test_the_time_of_the_as_of_example_is_now_in_utc() -> None:
    """It is the time at which the example is created, in the API's form."""
    now = datetime(2026, 3, 1, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    texts = [example.query for example in examples_of(Model(entities=(LAMP,)), now)]
    assert any('lampsAsOf(asOf: { time: "2026-03-01T12:30:00.000Z" }' in text for text in texts)


def test_the_default_time_is_the_clocks() -> None:
    """Without an argument, the example reads the present."""
    text = query(Model(entities=(LAMP,)), "ThenAndNow")
    time_point = datetime.fromisoformat(text.split('time: "')[1].split('"')[0])
    assert abs(datetime.now(UTC) - time_point) < timedelta(minutes=1)


def test_a_model_without_entities_has_no_examples() -> None:
    """The list is empty."""
    assert examples_of(Model(entities=())) == ()
