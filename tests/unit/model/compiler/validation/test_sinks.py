"""@sink: URLs to which changes are delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import SinkDefinition
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "example.org/x") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: "example.org/x"): it has no scheme',
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink without a scheme",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "ftp://example.org") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: "ftp://example.org"): its scheme is "ftp"',
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink of another scheme",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "https:///x") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: "https:///x"): it has no host',
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink without a host",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "https://example.org/a b") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: "https://example.org/a b"): a URL has no spaces',
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink with a space",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "https://example.org:x/") { # !
          id: ID! name: String }
        """,
        "Product",
        ("@sink(url: \"https://example.org:x/\"): port could not be cast to integer value as 'x'"),
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink with a bad port",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "https://[::1/") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: "https://[::1/"): invalid IPv6 URL',
        'write an http or https URL, for example "https://example.org/changes"',
        id="a sink with a broken host",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "") { # !
          id: ID! name: String }
        """,
        "Product",
        '@sink(url: ""): it has no scheme',
        'write an http or https URL, for example "https://example.org/changes"',
        id="an empty sink",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size @sink(url: "https://example.org") { # !
          width: Int }
        """,
        "Size",
        "@sink: Size is embedded, expected an entity",
        "put it on the entity",
        id="a sink of an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @sink(url: "https://example.org")
          @sink(url: "https://example.org", operations: [INSERT]) { # !
          id: ID!
          label: String
        }
        """,
        "Product",
        'two sinks deliver to "https://example.org"',
        "merge them, with the operations of both",
        id="two sinks with one URL",
    ),
    pytest.param(
        """
        type Product @collection(name: "products")
          @sink(url: "https://example.org", operations: []) { # !
          id: ID!
          name: String
        }
        """,
        "Product",
        "@sink(operations: []): empty, expected at least one",
        ("remove it for all operations, or choose from BASELINE, INSERT, UPDATE, REPLACE, DELETE"),
        id="a sink of no operations",
    ),
    pytest.param(
        """
        type Product @collection(name: "products")
          @sink(url: "https://example.org", operations: [INSERT, DELETE, INSERT]) { # !
          id: ID!
          name: String
        }
        """,
        "Product",
        "@sink names INSERT twice",
        "name it once",
        id="a sink of an operation twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products")
          @sink(url: "https://example.org", operations: [INSRT]) { # !
          id: ID!
          name: String
        }
        """,
        "Product",
        ("@sink(operations: [INSRT]): expected one of BASELINE, INSERT, UPDATE, REPLACE, DELETE"),
        'did you mean "INSERT"?',
        id="a sink of a misspelt operation",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_sinks_are_kept_in_order() -> None:
    """Every operation is delivered unless the sink names some."""
    model = read_model(
        """
        type Product
          @collection(name: "products")
          @sink(url: "https://one.example/hook?a=b")
          @sink(url: "http://two.example:8080", operations: [INSERT, DELETE]) {
          id: ID!
          name: String
        }
        """
    )
    assert model.entity("Product").sinks == (
        SinkDefinition(url="https://one.example/hook?a=b"),
        SinkDefinition(url="http://two.example:8080", operations=("INSERT", "DELETE")),
    )
