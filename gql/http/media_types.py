"""Media types in HTTP headers: `Content-Type` and `Accept`.

Names are compared whole and without regard to case, parameters one by one: `application/json` is
not in `text/plain; x=application/json`.

Source: RFC 9110, 5.6.6 (parameters), 8.3.1 (media types), 12.5.1 (Accept).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["JSON", "Accept", "MediaType", "parse_media_type"]

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105
_NAME = re.compile(rf"[ \t]*({_TOKEN})/({_TOKEN})[ \t]*")
_PARAMETER = re.compile(
    rf';[ \t]*(?:(?P<name>{_TOKEN})=(?:(?P<plain>{_TOKEN})|"(?P<quoted>(?:[^"\\]|\\.)*)"))?[ \t]*'
)
# Quoted text may contain commas; an open quote reaches to the end, so that no text is scanned
# twice.
_ELEMENT = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.?)*(?:"|$))+')
_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_NOT_AT_ALL = (0.0, 0)


@dataclass(frozen=True, slots=True)
class MediaType:
    """Media type `type/subtype` with parameters.

    Parsed ones are in lower case; constants may spell parameter names as clients compare them.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "; ".join([self.name, *(f"{key}={value}" for key, value in self.parameters.items())])


JSON = MediaType("application/json", {"charset": "utf-8"})


def parse_media_type(text: str) -> MediaType | None:
    """Parse a media type; return None if it is invalid."""
    found = _NAME.match(text)
    if found is None:
        return None
    parameters = {}
    end = found.end()
    while end < len(text):
        parameter = _PARAMETER.match(text, end)
        if parameter is None:
            return None
        end = parameter.end()
        if parameter["name"] is not None:
            value = parameter["plain"]
            if value is None:
                value = re.sub(r"\\(.)", r"\1", parameter["quoted"])
            parameters[parameter["name"].lower()] = value.lower()
    return MediaType(f"{found[1]}/{found[2]}".lower(), parameters)


class Accept:
    """Parsed Accept header; an empty one accepts anything, and invalid elements are ignored."""

    def __init__(self, header: str | None) -> None:
        self._ranges: list[tuple[MediaType, float]] = []
        for element in _ELEMENT.findall(header or "*/*"):
            found = parse_media_type(element)
            if found is None:
                continue
            rest = {name: value for name, value in found.parameters.items() if name != "q"}
            quality = found.parameters.get("q", "1")
            if _QUALITY.fullmatch(quality):
                self._ranges.append((MediaType(found.name, rest), float(quality)))

    def rank(self, offered: MediaType, *, naming: str | None = None) -> tuple[float, int]:
        """Return the quality of a media type, 0 to 1, and the precision of the range that matched.

        The precision is 2 for the type itself, 1 for `type/*`, 0 for `*/*`; the most precise range
        decides.

        Args:
            naming: parameter that a range must have to count.
        """
        has = {name.lower(): value for name, value in offered.parameters.items()}
        closest = (-1, -1)
        rank = _NOT_AT_ALL
        for media_range, quality in self._ranges:
            named = _named(media_range.name, offered.name)
            parameters = media_range.parameters
            if named is None or (naming is not None and naming not in parameters):
                continue
            if not parameters.items() <= has.items():
                continue
            if (named, len(parameters)) > closest:
                closest = (named, len(parameters))
                rank = (quality, named)
        return rank if rank[0] else _NOT_AT_ALL


def _named(media_range: str, name: str) -> int | None:
    if media_range == name:
        return 2
    if media_range == f"{name.partition('/')[0]}/*":
        return 1
    return 0 if media_range == "*/*" else None
