"""Texts of the model's errors."""

from __future__ import annotations

from revstream.model.errors import ModelError, ModelErrors


def error(line: int, column: int = 1, **changed: str | None) -> ModelError:
    """Return an error at that location."""
    facts: dict[str, str | None] = {
        "type": "Product",
        "field": "name",
        "problem": "it is wrong",
        "mend": "make it right",
        **changed,
    }
    return ModelError(filename="shop.graphql", line=line, column=column, **facts)  # type: ignore[arg-type]


def test_an_error_is_one_line() -> None:
    """The line has file, line, type and field, the problem and its fix."""
    assert str(error(12)) == "shop.graphql:12: Product.name: it is wrong; mend: make it right"


def test_an_error_of_a_type_names_no_field() -> None:
    """Parts that are None are omitted."""
    assert str(error(3, field=None)) == "shop.graphql:3: Product: it is wrong; mend: make it right"


def test_an_error_of_the_file_names_neither() -> None:
    """A syntax error belongs to no type."""
    assert error(3, type=None, field=None).subject is None
    assert str(error(3, type=None)) == "shop.graphql:3: it is wrong; mend: make it right"


def test_errors_are_sorted_by_location() -> None:
    """Errors are sorted by line, then by column, then in the order of creation."""
    first, second, third, fourth = error(2, 9), error(2, 9, mend="b"), error(10, 1), error(10, 2)
    assert ModelErrors([fourth, third, first, second]).errors == (first, second, third, fourth)


def test_the_text_has_one_line_for_each() -> None:
    """The first line has the number of errors."""
    assert str(ModelErrors([error(10), error(2)])) == (
        "shop.graphql has 2 errors:\n"
        "shop.graphql:2: Product.name: it is wrong; mend: make it right\n"
        "shop.graphql:10: Product.name: it is wrong; mend: make it right"
    )


def test_one_error_is_no_plural() -> None:
    """The first line is in the singular for one error."""
    assert str(ModelErrors([error(2)])).startswith("shop.graphql has 1 error:\n")
