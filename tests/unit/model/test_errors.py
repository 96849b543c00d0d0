"""What the user sees of the mistakes."""

from __future__ import annotations

from revstream.model.errors import ModelError, ModelErrors


def error(line: int, column: int = 1, **changed: str | None) -> ModelError:
    """A mistake at that place."""
    facts: dict[str, str | None] = {
        "type": "Product",
        "field": "name",
        "problem": "it is wrong",
        "mend": "make it right",
        **changed,
    }
    return ModelError(filename="shop.graphql", line=line, column=column, **facts)  # type: ignore[arg-type]


def test_an_error_is_one_line() -> None:
    """File, line, type and field, what is wrong, how to mend it."""
    assert str(error(12)) == "shop.graphql:12: Product.name: it is wrong; mend: make it right"


def test_an_error_of_a_type_names_no_field() -> None:
    """Only what there is is named."""
    assert str(error(3, field=None)) == "shop.graphql:3: Product: it is wrong; mend: make it right"


def test_an_error_of_the_file_names_neither() -> None:
    """A syntax error belongs to no type."""
    assert error(3, type=None, field=None).subject is None
    assert str(error(3, type=None)) == "shop.graphql:3: it is wrong; mend: make it right"


def test_errors_are_sorted_by_place() -> None:
    """By line, then by column, then as they were found."""
    first, second, third, fourth = error(2, 9), error(2, 9, mend="b"), error(10, 1), error(10, 2)
    assert ModelErrors([fourth, third, first, second]).errors == (first, second, third, fourth)


def test_the_text_has_one_line_for_each() -> None:
    """And one above them that counts."""
    assert str(ModelErrors([error(10), error(2)])) == (
        "shop.graphql has 2 errors:\n"
        "shop.graphql:2: Product.name: it is wrong; mend: make it right\n"
        "shop.graphql:10: Product.name: it is wrong; mend: make it right"
    )


def test_one_error_is_no_plural() -> None:
    """The line above counts in English."""
    assert str(ModelErrors([error(2)])).startswith("shop.graphql has 1 error:\n")
