"""`revstream demo`: load the shop once, say where to look, and write until stopped."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient
from rich.console import Console
from rich.markup import escape

from revstream.gql.cli.demo.data import beginnings
from revstream.gql.cli.demo.writers import Writers
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.gateway import Gateway

__all__ = ["demo_settings", "play"]

_DIRECTORY = Path(".revstream") / "demo"

_QUERIES = (
    (
        "What happened to the goods, by whom and why",
        "{ products(first: 3) { nodes { name price history(first: 5) "
        "{ nodes { version operation at author comment diff { path before after } } } } } }",
    ),
    (
        "The shop as it was, and as it is (take a resumeToken from the first)",
        "{ resumeToken productVersions(first: 5) "
        "{ nodes { documentId operation at resumeToken } } }",
    ),
    (
        "Changes as they happen, orders and their customers",
        "subscription { orderChanges { operation transition order "
        "{ status customer { name } lines { quantity product { name } } } resumeToken } }",
    ),
)


def demo_settings(settings: Settings) -> Settings:
    """The shop's model, and a MongoDB of its own, where nothing else is given."""
    given = settings.mongodb_uri is not None or settings.embedded is not None
    return replace(
        settings,
        schema=settings.schema or _model(),
        embedded=settings.embedded if given else _DIRECTORY,
    )


async def play(gateway: Gateway, address: str, uri: str, *, rate: float) -> None:
    """Load what is missing, print the addresses, and write until cancelled; 0: write nothing."""
    client: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(uri)
    codec: CodecOptions[dict[str, object]] = CodecOptions(
        tz_aware=True, uuid_representation=UuidRepresentation.STANDARD
    )
    async with client:
        shop = client.get_database(gateway.mongo.name, codec_options=codec)
        if not await shop.products.estimated_document_count():
            for name, documents in beginnings().items():
                if documents:
                    await shop[name].insert_many(documents)
        _show(address, rate=rate)
        await Writers(shop, random.Random()).run(rate)


def _show(address: str, *, rate: float) -> None:
    console = Console(highlight=False)
    console.print()
    written = ", and is being written to" if rate else "; nothing is written to it (--rate 0)"
    console.print(f"[bold]The example shop is open{written}.[/bold]")
    console.print(f"  GraphiQL   [link={address}/graphql]{address}/graphql[/link]")
    console.print(f"  Timeline   {address}/")
    console.print(f"  Schema     {address}/schema.graphql")
    for title, query in _QUERIES:
        console.print()
        console.print(f"[bold]{title}[/bold]")
        console.print(f"  {escape(query)}", soft_wrap=True)
    console.print()
    console.print("Ctrl+C stops it; its data stays for the next time.")


def _model() -> Path:
    """Return the path of the shop's model: beside this module in a wheel, else at the top."""
    packaged = Path(__file__).with_name("schema.graphql")
    return packaged if packaged.exists() else Path(__file__).resolve().parents[3] / "schema.graphql"
