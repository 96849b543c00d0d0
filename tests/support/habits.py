"""Documents in the habits of programs: Spring Data, and those that people write by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

__all__ = ["hand_made", "spring_data"]

Collections = Mapping[str, list[dict[str, Any]]]

START = datetime(2026, 1, 1, tzinfo=UTC)


def ids(count: int) -> list[ObjectId]:
    return [ObjectId() for _ in range(count)]


def spring_data(many: int = 40) -> Collections:
    """Return collections as Spring Data writes them: `_class`, decimals as text, DBRefs."""
    package = "com.example.shop"
    customers, products, invoices = ids(many), ids(many), ids(many)
    numbers = range(many)

    def audited(n: int) -> dict[str, Any]:
        at = START + timedelta(minutes=n)
        return {"createdDate": at, "lastModifiedDate": at, "createdBy": f"user{n % 3}"}

    return {
        "customer": [
            {
                "_id": customers[n],
                "firstName": f"F{n}",
                # A LocalDate is midnight in the time zone of the program.
                "birthDate": START - timedelta(days=365 * 20 + n, hours=1),
                "address": {"street": f"S {n}", "zipCode": f"{n:05d}"},
                "roles": ["ROLE_USER"] if n % 2 else ["ROLE_USER", "ROLE_ADMIN"],
                "version": Int64(n),
                **audited(n),
                "_class": f"{package}.Customer",
            }
            for n in numbers
        ],
        "product": [
            {
                "_id": products[n],
                "sku": f"A-{n}",
                "price": f"{n}.90",
                "status": ["ACTIVE", "SOLD_OUT"][n % 2],
                "attributes": {f"key{m}": f"v{m}" for m in range(n % 4)},
                "_class": f"{package}.Product",
            }
            for n in numbers
        ],
        "purchaseOrder": [
            {
                "customer": DBRef("customer", customers[n]),
                "productIds": products[n : n + 3],
                "items": [
                    {"product": DBRef("product", each), "quantity": 1, "price": Decimal128("1.90")}
                    for each in products[n : n + 2]
                ],
                "placedAt": START + timedelta(seconds=n),
                "payment": {"iban": "DE00", "_class": f"{package}.Transfer"}
                if n % 2
                else {"card": "4111", "expires": "12/29", "_class": f"{package}.Card"},
                "_class": f"{package}.PurchaseOrder",
            }
            for n in numbers
        ],
        "invoice": [
            {
                "_id": invoices[n],
                "customerId": customers[n],
                "total": Decimal128(f"{n}.10"),
                "due": START + timedelta(days=n),
                "paid": n % 2 == 0,
                **audited(n),
                "_class": f"{package}.Invoice",
            }
            for n in numbers
        ],
        "invoiceLine": [
            {"invoice": invoices[n // 2], "no": n % 2, "text": f"T{n}", "_class": f"{package}.Line"}
            for n in numbers
        ],
        "shipment": [
            {
                "_id": str(UUID(int=n)),
                "invoiceIds": invoices[n : n + 2],
                "location": {"x": 1.5, "y": float(n)},
                "point": {"type": "Point", "coordinates": [7.1, 50.7]},
                "_class": f"{package}.Shipment",
            }
            for n in numbers
        ],
        "auditEvent": [
            {
                "type": f"com.example.Event{n % 2}",
                "payload": {"n": n} if n % 2 else {"text": "x", "list": [1, "a"]},
                **(
                    {"ip": "::1", "user": customers[n], "_class": f"{package}.LoginEvent"}
                    if n % 2
                    else {"invoiceId": invoices[n], "_class": f"{package}.InvoiceEvent"}
                ),
            }
            for n in numbers
        ],
        "databaseSequence": [{"_id": "invoice_sequence", "seq": Int64(7), "_class": "x.Sequence"}],
        "fs.files": [
            {
                "_id": each,
                "filename": f"f{n}.pdf",
                "length": Int64(1),
                "chunkSize": 261120,
                "uploadDate": START,
                "metadata": {"_contentType": "application/pdf"},
            }
            for n, each in enumerate(invoices)
        ],
        "fs.chunks": [{"files_id": each, "n": 0, "data": b"x"} for each in invoices],
    }


def hand_made(many: int = 40) -> Collections:
    """Return collections with odd names, mixed types, nulls, nested lists and numeric keys."""
    people = ids(many)
    numbers = range(many)
    kinds: list[Any] = [
        None, True, 1, Int64(2**60), 1.5, float("nan"), Decimal128("NaN"), "text", b"bytes",
        Binary(b"x" * 16, 3), ObjectId(), START, Timestamp(1, 2), Regex("a", "i"), Code("f()"),
        Code("f()", {"x": 1}), MinKey(), MaxKey(), DBRef("people", 1), [], {}, [[1], ["a", [None]]],
        Binary(UUID(int=1).bytes, 4),
    ]  # fmt: skip
    return {
        "people": [
            {
                "_id": people[n],
                "full name": f"N {n}",
                "größe": 170 + n,
                "2nd": n,
                "__typename": "Person",
                "_secret": "x",
                "id": n,
                "type": "a" if n % 2 else "b",
                "friends": people[max(0, n - 2) : n],
                "best": people[n - 1] if n else None,
            }
            for n in numbers
        ],
        "Order-Items.v2": [
            {"_id": n, "who": people[n], "and": n, "or": None, "not": [], "1": "one", "v": {"7": 1}}
            for n in numbers
        ],
        "mixed": [{"v": each, "l": [each], "o": {"v": each}} for each in kinds],
        "ids": [{"_id": each, "n": 1} for each in (True, 1.5, Int64(2**60), "a", {"a": 1}, b"b")],
        "prices": [
            {"_id": f"p{n}", "by_year": {str(2000 + m): m for m in range(n % 5)}} for n in numbers
        ],
        "matrix": [
            {"rows": [[1, 2], [3]], "deep": [[[{"a": [1, None]}]]], "gaps": [1, None], "none": []}
            for _ in numbers
        ],
        "sparse": [{f"field{m}": m for m in range(n % 7)} for n in numbers],
        "Query": [{"name": f"q{n}", "args": {"a": None if n % 2 else 1}} for n in numbers],
        "news": [
            {"title": f"T {n}", "newsId": n, "State": "Open" if n % 2 else "open"} for n in numbers
        ],
        "numbers": [
            {
                "_id": Int64(2**40 + n),
                "a": n if n % 2 else float(n),
                "b": n if n % 3 else str(n),
                "c": Decimal128("1") if n % 2 else n,
            }
            for n in numbers
        ],
    }
