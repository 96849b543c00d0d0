"""The least possible cost of a web server over MongoDB: bare routes, Motor, orjson, no GraphQL.

`python -m benchmarks.programs.bare_server URI DATABASE`
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pymongo
import uvicorn
import uvloop
from motor.motor_asyncio import AsyncIOMotorClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from benchmarks.products import COLLECTION
from benchmarks.programs.messages import emit

_FIELDS = dict.fromkeys(("version", "sku", "name", "price", "stock"), True)
_MORE = dict.fromkeys(("tags", "updatedAt"), True)


async def main(uri: str, database: str) -> None:
    client: Any = AsyncIOMotorClient(uri)
    collection, suppliers = client[database][COLLECTION], client[database]["suppliers"]

    async def product(request: Request) -> Response:
        found = await collection.find_one({"_id": int(request.path_params["id"])}, _FIELDS)
        return _json({"product": found})

    async def change(request: Request) -> Response:
        found = await update(
            collection, int(request.path_params["id"]), orjson.loads(await request.body())
        )
        return _json({"product": found})

    async def products(request: Request) -> Response:
        asked = request.query_params
        where: dict[str, Any] = {}
        if "below" in asked:
            where = {"stock": {"$lt": int(asked["below"])}}
        elif "referring" in asked:
            named = suppliers.find({"name": {"$lt": asked["referring"]}}, {"_id": True})
            ids = [each["_id"] for each in await named.to_list(None)]
            where = {"supplierId": {"$in": ids}}
        fields = _FIELDS | (_MORE if "more" in asked else {})
        if "supplier" in asked:
            fields = fields | {"supplierId": True}
        rows = collection.find(where, fields).sort("_id", 1).limit(int(asked["first"]))
        found = await rows.to_list(None)
        if "supplier" in asked:
            await refer(found)
        return _json({"products": found})

    async def refer(products: Sequence[dict[str, Any]]) -> None:
        """Replace the supplier's id in each product by the supplier's name."""
        ids = list({each["supplierId"] for each in products})
        rows = suppliers.find({"_id": {"$in": ids}}, {"_id": True, "name": True})
        names = {each.pop("_id"): each for each in await rows.to_list(None)}
        for each in products:
            each["supplier"] = names[each.pop("supplierId")]

    async def listen(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive()

    app = Starlette(
        routes=[
            Route("/product/{id}", product, methods=["GET"]),
            Route("/product/{id}", change, methods=["POST"]),
            Route("/products", products),
            WebSocketRoute("/listen", listen),
        ]
    )
    # The same server options as the gateway's: gql/runtime/server.py.
    config = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        emit("serving", address=f"http://127.0.0.1:{listening.getsockname()[1]}")
        await uvicorn.Server(config).serve(sockets=[listening])


async def update(collection: Any, number: int, values: Mapping[str, Any]) -> Any:
    """Set these fields of a document and increment its version."""
    return await collection.find_one_and_update(
        {"_id": number},
        {"$set": values, "$inc": {"version": 1}},
        projection=_FIELDS,
        return_document=pymongo.ReturnDocument.AFTER,
    )


def _json(data: object) -> Response:
    return Response(orjson.dumps(data), media_type="application/json")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
