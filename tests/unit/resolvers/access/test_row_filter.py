"""Row rules with the claims of a principal."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.access.row_filter import (
    RowFilter,
    claims_named,
    mistakes_in_rules,
    rows_of,
)
from revstream.resolvers.errors import Forbidden


def rows(rule: str, caller: Principal) -> RowFilter:
    model = read_model(
        f"""type Note @collection(name: "notes") @access(rows: "{rule}") {{
          id: ID! owner: String shared: Boolean tags: [String!] place: Place data: JSON }}
        type Place {{ city: String }}"""
    )
    return rows_of(model, model.entity("Note"), caller)


def ann(**claims: Any) -> Principal:
    return Principal(name="ann", roles=frozenset({"staff"}), claims=claims)


HERS = {"_id": "1", "owner": "ann", "shared": False, "place": {"city": "Ulm"}}
SHARED = {"_id": "2", "owner": "bob", "shared": True, "tags": ["x"], "data": {"by": [{"team": 5}]}}
NOBODYS = {"_id": "3", "owner": None}
ALL = (HERS, SHARED, NOBODYS)

# API keys whose principal is the text of Ann's `sub`.
NAMESAKE = Principal(name="ann", account="revstream:key:ann", claims={"org": "acme"})
FOR_ANN = Principal(name="importer", account="revstream:key:importer", claims={"sub": "ann"})


@pytest.mark.parametrize(
    ("rule", "caller", "expected"),
    [
        ("{ owner: { eq: $sub } }", ann(), [HERS]),
        # An unknown claim matches no document, in either form of the condition.
        ("{ owner: { eq: $sub } }", ANONYMOUS, []),
        ("{ owner: { ne: $sub } }", ANONYMOUS, []),
        ("{ not: { owner: { eq: $sub } } }", ANONYMOUS, []),
        ("{ not: { not: { owner: { eq: $sub } } } }", ANONYMOUS, []),
        ("{ owner: { notIn: $others } }", ann(), []),
        ("{ owner: { notIn: $others } }", ann(others=["bob", None]), []),
        ("{ owner: { eq: $tenant } }", ann(tenant=None), []),
        ("{ place: { city: { ne: $city } } }", ann(), []),
        # The name of an API key is no `sub`; the key's entry may have claims for row rules.
        ("{ owner: { eq: $sub } }", NAMESAKE, []),
        ("{ not: { owner: { eq: $sub } } }", NAMESAKE, []),
        ("{ owner: { eq: $sub } }", FOR_ANN, [HERS]),
        # False for any document.
        (
            "{ not: { and: [{ owner: { eq: $x } }, { shared: { eq: true } }] } }",
            *(ann(), [HERS, NOBODYS]),
        ),
        # Alternatives without the claim are not affected.
        ("{ or: [{ owner: { eq: $sub } }, { shared: { eq: true } }] }", ANONYMOUS, [SHARED]),
        ("{ or: [{ owner: { eq: $sub } }, { shared: { eq: true } }] }", ann(), [HERS, SHARED]),
        ("{ place: { city: { eq: $org__city } } }", ann(org={"city": "Ulm"}), [HERS]),
        ("{ tags: { hasSome: $tags } }", ann(tags=["x", "y"]), [SHARED]),
        ("{ owner: { in: $tags } }", ann(tags=[]), []),
        ("{ id: { eq: $sub } }", Principal(name="3"), [NOBODYS]),
        ('{ data: { path: \\"by.team\\", eq: $team } }', ann(team=5), [SHARED]),
        ('{ data: { path: \\"by.team\\", ne: $team } }', ann(), []),
    ],
)
def test_a_rule_matches_by_the_claims_of_the_principal(
    rule: str, caller: Principal, expected: list[dict[str, Any]]
) -> None:
    """A missing claim never lets a document through."""
    assert [each for each in ALL if rows(rule, caller).allow(each)] == expected


def test_a_claim_of_another_type_is_an_error() -> None:
    """A list in place of a single value is a mistake in the rule or at the issuer."""
    with pytest.raises(Forbidden, match="owner"):
        rows("{ owner: { eq: $owners } }", ann(owners=["ann"]))


def test_a_version_is_matched_by_its_own_content() -> None:
    """Tombstones and versions with unknown content do not match."""
    mine = rows("{ owner: { eq: $sub } }", ann())
    record = {"doc": "1", "v": 1, "op": "UPDATE", "full": {"owner": "ann"}}
    assert mine.allow_version(record)
    assert not mine.allow_version({**record, "full": {"owner": "bob"}})
    assert not mine.allow_version({**record, "full": None})
    others = rows("{ owner: { ne: $sub } }", ann())
    assert not others.allow_version({**record, "op": "DELETE", "full": None})


def test_the_claims_of_a_rule_are_listed() -> None:
    """A token with other values of these claims has other rights."""
    model = read_model(
        """type Note @collection(name: "notes")
        @access(rows: "{ or: [{ owner: { eq: $sub } }, { owner: { in: [$a, $b] } }] }") {
          id: ID! owner: String }"""
    )
    assert claims_named(model) == {"sub", "a", "b"}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "{ at: { near: { point: { longitude: 200, latitude: 1 }, maxDistance: 5 } } }",
            "Note: @access(rows:) Note.at.near.point: {'longitude': 200, 'latitude': 1}, expected",
        ),
        (
            "{ or: [{ owner: { eq: $sub } }, { not: { at: { within: { polygon: [] } } } }] }",
            "Note: @access(rows:) Note.at.within.polygon: 0 corners, expected 3 to 200; correct",
        ),
        ("{ at: { near: { point: $home, maxDistance: 5 } } }", None),
        ("{ owner: { eq: $roles } }", None),
    ],
)
def test_constants_that_never_fit_are_mistakes_of_the_model(
    rule: str, expected: str | None
) -> None:
    """They would refuse every caller; claims are not known yet."""
    model = read_model(
        f"""type Note @collection(name: "notes") @access(rows: "{rule}") {{
          id: ID! owner: String at: Point }}"""
    )
    found = mistakes_in_rules(model)
    assert len(found) == (expected is not None)
    assert expected is None or found[0].startswith(expected)
