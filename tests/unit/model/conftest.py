"""Shared functions of the model's tests: parse a text that has exactly one mistake."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError, ModelErrors

MARK = "# !"


@pytest.fixture
def mistake() -> Callable[[str], ModelError]:
    """Parse a text with one mistake, on the line that ends with `# !`, and return the error."""

    def read(text: str) -> ModelError:
        text = dedent(text).strip("\n")
        with pytest.raises(ModelErrors) as caught:
            read_model(text)
        (error,) = caught.value.errors
        (line,) = (
            number for number, line in enumerate(text.splitlines(), start=1) if line.endswith(MARK)
        )
        assert error.line == line
        assert error.filename == "schema.graphql"
        return error

    return read


@pytest.fixture
def errors() -> Callable[[str], list[str]]:
    """Parse a text with mistakes and return its errors as shown, without the file's name."""

    def read(text: str) -> list[str]:
        with pytest.raises(ModelErrors) as caught:
            read_model(dedent(text).strip("\n"))
        return [str(each).removeprefix("schema.graphql:") for each in caught.value.errors]

    return read
