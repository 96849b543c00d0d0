"""Documents of Beanie, as a program has them, with all types that it stores."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from beanie import BackLink, Document, Indexed, Link, PydanticObjectId
from pydantic import BaseModel, Field
from pymongo import IndexModel


class Kind(StrEnum):
    NEW = "new"
    IN_USE = "in-use"


class Address(BaseModel):
    street: str
    zip: str | None = None
    inner: Address | None = None


class Timestamped(Document):
    created: datetime


class Maker(Timestamped):
    name: Annotated[str, Indexed(unique=True)]
    code: str
    things: list[BackLink[Thing]] = Field(default=[], json_schema_extra={"original_field": "maker"})

    class Settings:
        name = "makers"
        indexes: ClassVar = [IndexModel("code", unique=True), "created"]


class Thing(Timestamped):
    id: UUID = Field(alias="_id")
    maker: Link[Maker]
    makers: list[Link[Maker]] = Field(default_factory=list)
    first_maker_id: PydanticObjectId | None = None
    other_ids: list[PydanticObjectId] = Field(default_factory=list)
    price: Decimal
    day: date
    lasts: timedelta | None = None
    kind: Kind = Kind.NEW
    size: Literal["s", "m"] = "s"
    raw: bytes = b""
    counts: dict[str, int] = Field(default_factory=dict)
    mixed: int | str = 1
    number: int
    share: float = 0.5
    address: Address | None = None
    addresses: list[Address] = Field(default_factory=list)
    tags: set[str] = Field(default_factory=set)
    pair: tuple[int, str] = (1, "x")
    secret: str = Field(default="", exclude=True)
    renamed: bool = Field(alias="otherName", default=True)

    class Settings:
        name = "things"


class Event(Document):
    at: datetime

    class Settings:
        name = "events"
        is_root = True


class Click(Event):
    url: str


class Job(Document):
    thing_id: UUID
    payload: dict[str, object] | None = None
