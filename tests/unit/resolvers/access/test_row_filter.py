"""resolvers.access.row_filter: a row rule with a caller's claims in it."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.access.row_filter import RowFilter, claims_named, rows_of
from revstream.resolvers.errors import Forbidden


def rows(rule: str, caller: Principal) -> RowFilter:
    model = read_model(
        f"""type Note @collection(name: "notes") @access(rows: "{rule}") {{
          id: ID! owner: String shared: Boolean tags: [String!] place: Place }}
        type Place {{ city: String }}"""
    )
    return rows_of(model, model.entity("Note"), caller)


def ann(**claims: Any) -> Principal:
    return Principal(name="ann", roles=frozenset({"staff"}), claims=claims)


HERS = {"_id": "1", "owner": "ann", "shared": False, "place": {"city": "Ulm"}}
SHARED = {"_id": "2", "owner": "bob", "shared": True, "tags": ["x"]}
NOBODYS = {"_id": "3", "owner": None}
ALL = (HERS, SHARED, NOBODYS)

# API keys whose principal is the text of Ann's `sub`.
NAMESAKE = Principal(name="ann", account="revstream:key:ann", claims={"org": "acme"})
FOR_ANN = Principal(name="importer", account="revstream:key:importer", claims={"sub": "ann"})


@pytest.mark.parametrize(
    ("rule", "caller", "seen"),
    [
        ("{ owner: { eq: $sub } }", ann(), [HERS]),
        # What is unknown lets nothing through, whichever way it is asked.
        ("{ owner: { eq: $sub } }", ANONYMOUS, []),
        ("{ owner: { ne: $sub } }", ANONYMOUS, []),
        ("{ not: { owner: { eq: $sub } } }", ANONYMOUS, []),
        ("{ not: { not: { owner: { eq: $sub } } } }", ANONYMOUS, []),
        ("{ owner: { notIn: $others } }", ann(), []),
        ("{ owner: { notIn: $others } }", ann(others=["bob", None]), []),
        ("{ owner: { eq: $tenant } }", ann(tenant=None), []),
        ("{ place: { city: { ne: $city } } }", ann(), []),
        # The name of an API key is nobody's `sub`; its entry may say whose rows it sees.
        ("{ owner: { eq: $sub } }", NAMESAKE, []),
        ("{ not: { owner: { eq: $sub } } }", NAMESAKE, []),
        ("{ owner: { eq: $sub } }", FOR_ANN, [HERS]),
        # False whatever it is.
        (
            "{ not: { and: [{ owner: { eq: $x } }, { shared: { eq: true } }] } }",
            *(ann(), [HERS, NOBODYS]),
        ),
        # What does not need it does not suffer from it.
        ("{ or: [{ owner: { eq: $sub } }, { shared: { eq: true } }] }", ANONYMOUS, [SHARED]),
        ("{ or: [{ owner: { eq: $sub } }, { shared: { eq: true } }] }", ann(), [HERS, SHARED]),
        ("{ place: { city: { eq: $org__city } } }", ann(org={"city": "Ulm"}), [HERS]),
        ("{ tags: { hasSome: $tags } }", ann(tags=["x", "y"]), [SHARED]),
        ("{ owner: { in: $tags } }", ann(tags=[]), []),
        ("{ id: { eq: $sub } }", Principal(name="3"), [NOBODYS]),
    ],
)
def test_a_rule_shows_what_its_claims_say(
    rule: str, caller: Principal, seen: list[dict[str, Any]]
) -> None:
    """What is missing never lets a row through."""
    assert [each for each in ALL if rows(rule, caller).allow(each)] == seen


def test_a_claim_of_another_kind_is_said_and_shows_nothing() -> None:
    """A list where one value is compared is a mistake of whoever wrote the rule, or the issuer."""
    with pytest.raises(Forbidden, match="owner"):
        rows("{ owner: { eq: $owners } }", ann(owners=["ann"]))


def test_a_version_is_judged_by_its_own_content_and_a_deletion_is_not_there() -> None:
    """Nor is one whose content is not known."""
    mine = rows("{ owner: { eq: $sub } }", ann())
    record = {"doc": "1", "v": 1, "op": "UPDATE", "full": {"owner": "ann"}}
    assert mine.allow_version(record)
    assert not mine.allow_version({**record, "full": {"owner": "bob"}})
    assert not mine.allow_version({**record, "full": None})
    others = rows("{ owner: { ne: $sub } }", ann())
    assert not others.allow_version({**record, "op": "DELETE", "full": None})


def test_the_claims_that_decide_are_known() -> None:
    """A sign-in with other values of them has other rights."""
    model = read_model(
        """type Note @collection(name: "notes")
        @access(rows: "{ or: [{ owner: { eq: $sub } }, { owner: { in: [$a, $b] } }] }") {
          id: ID! owner: String }"""
    )
    assert claims_named(model) == {"sub", "a", "b"}
