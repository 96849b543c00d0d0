"""Ids that are unique across all types, for `Query.node`.

They are base64url of `Type:id`: opaque to clients, readable in logs after decoding.
"""

from __future__ import annotations

import base64
import binascii

from revstream.resolvers.errors import BadUserInput

__all__ = ["node_id", "parse_node_id"]


def node_id(type_name: str, id_text: str) -> str:
    """Return the `nodeId` of an object."""
    return base64.urlsafe_b64encode(f"{type_name}:{id_text}".encode()).decode().rstrip("=")


def parse_node_id(text: str, name: str = "nodeId") -> tuple[str, str]:
    """Return the type name and the `id` of a `nodeId`; the caller checks whether the type exists.

    Args:
        name: the name of the argument, for the error message.

    Raises:
        BadUserInput: not a text that `node_id` returns.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        decoded = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        type_name, colon, id_text = decoded.partition(":")
        if not colon or not type_name.isidentifier() or node_id(type_name, id_text) != text:
            raise ValueError("not of the form Type:id")
    except (ValueError, binascii.Error) as exc:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise BadUserInput(
            f"{name}: {shown!r}, expected a node id; take one from a field {name}", argument=name
        ) from exc
    return type_name, id_text
