"""Headers of every response of the API, in addition to its type and length."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["HEADERS"]

HEADERS: Mapping[str, str] = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
