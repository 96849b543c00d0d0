"""Gateway over rows of two owners, where the first may not see values of the second.

Each value of the second owner contains `SECRET`, or is a number that occurs nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import bson
from pymongo import MongoClient

from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Entity
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.mutations.document_input import parse_change
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.values.global_id import node_id
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop
from tests.support.layouts import CLASSIC, Program, program

_RULE = '@access(rows: "{ ownerId: { eq: $sub } }")'
MODEL_TEXT = f"""
type Invoice @collection(name: "invoices"%s) {_RULE} {{
  id: ID! ownerId: String! title: String! amount: Int!
  address: Address note: JSON tags: [String!]
  accountId: ID account: Account @reference(by: "accountId")
}}
type Address {{ street: String city: String }}
type Account @collection(name: "accounts") {_RULE} {{
  id: ID! ownerId: String! name: String!
  invoices: [Invoice!]! @referencedBy(field: "accountId")
}}
type Meter @collection(name: "meters") {_RULE} {{
  id: ID! ownerId: String! sequence: Long! @fence amount: Int!
}}
"""
SECRET, NUMBER = "SECRET", 987654321
ANN = Principal(name="ann")
EVE = Principal(name=f"{SECRET}-eve")
# The other owner's versions of documents that changed hands.
HIDDEN = (
    *(SECRET, str(NUMBER), "came@1", "moved@2", "moved@3", "mine@draft-"),
    # References from the first owner's invoice to documents of the other.
    *(node_id("Account", "other-account"), "other-account@"),
)
NOT_THERE = ("hidden", "other-account", "hidden-meter", "deleted")

_INVOICE = {"amount": 1, "tags": ["t"], "note": {"n": 1}, "address": {"street": "s", "city": "c"}}
_SECRET_INVOICE = {
    "amount": NUMBER,
    "tags": [SECRET],
    "note": {"n": SECRET},
    "address": {"street": SECRET, "city": SECRET},
}


@dataclass(kw_only=True, eq=False)
class Rows:
    """The gateway; `began` is a resume token before all of the rows."""

    shop: Shop
    began: str
    storage: str

    async def ask(self, caller: Principal, text: str, **variables: Any) -> dict[str, Any]:
        """Return the whole response, as JSON."""
        context = context_of(self.shop.gateway, caller=caller)
        result = await self.shop.schema.execute(text, variables, context)
        errors = [each.formatted for each in result.errors or ()]
        return {"data": result.data, "errors": errors}

    async def events(self, caller: Principal, text: str, **variables: Any) -> Any:
        """Open a subscription and yield its results."""
        context = context_of(self.shop.gateway, caller=caller)
        return await self.shop.schema.subscribe(text, variables, context)


# Each operation selects all fields.
_UNLIMITED = Limits(**{each: 0 for each in Limits.__slots__ if each.startswith("max_")})


@asynccontextmanager
async def guarded_rows(
    client: MongoClient[Row], uri: str, name: str, *, storage: str = "FULL"
) -> AsyncIterator[Rows]:
    """Run a gateway whose rows are all recorded; see `_fill`.

    Args:
        storage: storage kind of the invoices' archive, or the layout of their collection.
    """
    more = f', history: {storage}, version: "v"' if storage in CLASSIC else f", storage: {storage}"
    model = read_model(MODEL_TEXT % more)
    # Idle subscribers get a checkpoint event soon.
    settings = Settings(quiet_s=0.2)
    async with open_shop(client, uri, name, settings, model=model, limits=_UNLIMITED) as shop:
        at = await shop.gateway.mongo.operation_time()
        rows = Rows(
            shop=shop,
            began=resume_tokens.encode(resume_tokens.token_from_time(at), shop.gateway.deployment),
            storage=storage,
        )
        kept = program(storage, shop.database, "invoices") if storage in CLASSIC else None
        await _fill(shop, kept)
        await shop.recorded()
        yield rows


async def _fill(shop: Shop, kept: Program | None) -> None:
    database = shop.database
    wrote = 0

    def attributed(owner: Principal) -> Row:
        nonlocal wrote
        wrote += 1
        return {"id": f"w{wrote}", "by": owner.name, "why": f"{owner.name} says"}

    def insert(collection: str, id_: str, owner: Principal, **values: Any) -> None:
        if kept is not None and collection == "invoices":
            kept.write(id_, {"ownerId": owner.name, "_change": attributed(owner), **values})
            return
        database[collection].insert_one(
            {
                "_id": id_,
                "ownerId": owner.name,
                "version": 1,
                "_change": attributed(owner),
                **values,
            }
        )

    def change(collection: str, id_: str, owner: Principal, **values: Any) -> None:
        if kept is not None and collection == "invoices":
            before = kept.bodies[id_] or {}
            insert(collection, id_, owner, **{**_content(before), **values})
            return
        database[collection].update_one(
            {"_id": id_},
            {
                "$set": {"ownerId": owner.name, "_change": attributed(owner), **values},
                "$inc": {"version": 1},
            },
        )

    insert("accounts", "account", ANN, name="ann's")
    insert("accounts", "other-account", EVE, name=SECRET)
    insert("meters", "meter", ANN, sequence=bson.Int64(5), amount=1)
    insert("meters", "hidden-meter", EVE, sequence=bson.Int64(5), amount=NUMBER)
    insert("invoices", "mine", ANN, title="mine", accountId="other-account", **_INVOICE)
    change("invoices", "mine", ANN, title="mine still")
    insert("invoices", "hidden", EVE, title=SECRET, accountId="account", **_SECRET_INVOICE)
    change("invoices", "hidden", EVE, title=f"{SECRET} still")
    insert("invoices", "came", EVE, title=SECRET, accountId="account", **_SECRET_INVOICE)
    change("invoices", "came", ANN, title="came", **_INVOICE)
    insert("invoices", "moved", ANN, title="moved", accountId="account", **_INVOICE)
    change("invoices", "moved", EVE, title=SECRET, **_SECRET_INVOICE)
    change("invoices", "moved", EVE, title=f"{SECRET} still")
    insert("invoices", "deleted", EVE, title=SECRET, accountId="account", **_SECRET_INVOICE)
    if kept is None:
        database["invoices"].delete_one({"_id": "deleted"})
    else:
        kept.write("deleted", None)
    await shop.recorded()
    await _discuss(shop)


def _content(body: Row) -> Row:
    return {name: value for name, value in body.items() if name not in ("ownerId", "_change")}


async def _discuss(shop: Shop) -> None:
    """Create drafts and comments through the gateway itself, which has all rights."""
    editing, model = shop.gateway.services.editing, shop.gateway.model
    author = Author(by=EVE.name, why=f"{SECRET} why")
    invoice = model.entity("Invoice")

    async def propose(entity: Entity, key: str, **patch: Any) -> int:
        draft = await editing.drafts.propose(
            entity, key, parse_change(model, entity, patch), author
        )
        return draft.number

    await propose(invoice, "hidden", title=f"{SECRET} proposed")
    published = await propose(invoice, "hidden", title=f"{SECRET} accepted")
    await editing.publishing.publish(invoice, "hidden", published, author)
    # A transfer of the document to the other owner.
    await propose(invoice, "mine", ownerId=EVE.name, title=SECRET)
    for entity, key in (("Account", "other-account"), ("Meter", "hidden-meter")):
        kind = model.entity(entity)
        change = {"name": SECRET} if entity == "Account" else {"amount": NUMBER}
        number = await propose(kind, key, **change)
        await editing.publishing.publish(kind, key, number, author)
        await editing.comments.add(kind, key, SECRET, author, version=1)
        await editing.comments.add(kind, key, SECRET, author, draft=number)
    for about in ({"version": 1}, {"draft": 1}, {"draft": published}):
        await editing.comments.add(invoice, "hidden", SECRET, author, **about)
    for key in ("came", "moved"):
        number = 1 if key == "came" else 2
        await editing.comments.add(invoice, key, SECRET, author, version=number)
    await editing.comments.add(invoice, "mine", SECRET, author, draft=1)
