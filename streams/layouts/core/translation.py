"""Translation of a layout's change events in which one faulty event does not block the others."""

from __future__ import annotations

from collections.abc import Sequence

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.core.errors import is_fault_of_document
from revstream.streams.layouts.core.interface import Layout

__all__ = ["UntranslatedEvent", "translate_events"]

UntranslatedEvent = tuple[ChangeEvent, Exception]


async def translate_events(
    layout: Layout, events: Sequence[ChangeEvent], *, before: bool = False
) -> tuple[list[ChangeEvent], list[UntranslatedEvent]]:
    """Translate events as `Layout.translate`; return the untranslatable ones separately, with the
    reason.

    Raises:
        GatewayError: MongoDB cannot be reached, or refuses: no fault of a document.
    """
    undecoded = [(each, each.fault) for each in events if each.fault is not None]
    if undecoded:
        known = [each for each in events if each.fault is None]
        found, more = await translate_events(layout, known, before=before)
        return found, [*undecoded, *more]
    try:
        return await layout.translate(events, before=before), []
    except Exception as exc:
        if not is_fault_of_document(exc):
            raise
        if len(events) == 1:
            return [], [(events[0], exc)]
    middle = len(events) // 2
    one, left_out = await translate_events(layout, events[:middle], before=before)
    other, more = await translate_events(layout, events[middle:], before=before)
    return one + other, left_out + more
