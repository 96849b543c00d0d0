"""Log events with their meanings, for log-events.md. Level and facts are those of the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from tools.reference.log_calls import log_calls
from tools.reference.markdown import code, linked, table

__all__ = ["EVENTS", "PARTS"]

EVENTS: Mapping[str, Mapping[str, str]] = {
    "Start and stop": {
        "connected": "MongoDB is reached, and fit to be served.",
        "progress": "A step of the start, as of building indexes.",
        "serving": "The address answers.",
        "recording": "`revstream record` runs.",
        "managing": "The management port answers.",
        "stopping": "SIGTERM or Ctrl+C came: subscriptions end, leases are released.",
        "stopped": "The process ends.",
        "data": "A field does not fit the model in a sample of documents, or a collection is not "
        "there. `mend` says what to do.",
        "index refused": "MongoDB does not build an index of the model, as a unique one over "
        "equal values.",
        "collection cannot be created": "MongoDB refuses it.",
        "few open files": "The limit of open files is too low for `--sockets` and "
        "`--connections`, so that fewer are accepted; raise it (`ulimit -n`).",
        "embedded mongod started": "The MongoDB of `--embedded` or `demo` runs.",
        "embedded mongod died": "It ended by itself; the process ends, too.",
        "embedded mongod did not stop in time and is killed": "Its data are recovered at the next "
        "start.",
        "stopping the mongod of an earlier run": "It was left behind, as by `kill -9`.",
        "background task died": "A fault; the process exits with 1.",
        "background tasks do not end": "Shutdown takes longer than `--shutdown-s`; the process "
        "ends without them.",
        "task failed": "A fault of a task that did not end the process. The line has a traceback.",
    },
    "MongoDB": {
        "change stream interrupted": "It is opened again at the same place, after "
        "`retry_in_s`. Once, then each minute while it lasts.",
        "change stream open again": "It goes on.",
        "a change event exceeds 16 MB: %s": "It is read again with less detail, or its version is "
        "a gap.",
        "the live stream begins anew": "The oplog no longer reaches back to its place. "
        "Subscriptions end, and go on from the archive.",
        "no images: versions are built from deltas": "MongoDB stores no images before and after "
        "writes, or may not. Versions are as exact, and cost more.",
        "the oplog cannot be read: history begins now": "`grant_command` gives the right to read "
        "it.",
        "wire connections not used, reads are slower: %s": "All reads use the driver.",
        "database is a copy: it gets its own tag, and its documents are read again": "The database "
        "was copied from another one. Resume tokens of that one are refused.",
        "collection not read": "Statistics of a collection cannot be read now.",
    },
    "Recording": {
        "share": "The partitions that this process records, and how many processes there are.",
        "lease acquired": "This process does the work of a listener now.",
        "lease released": "It gave it back.",
        "lease handed over": "Another process does the work, so that all have an equal share.",
        "lease lost": "Another process has taken over.",
        "lease not released: it expires by itself": "MongoDB could not be reached at the end.",
        "lease renewal failed": "Tried again; another process takes over if it lasts.",
        "lease request failed": "Tried again.",
        "work interrupted": "MongoDB cannot be reached, or answers too slowly. The work goes on "
        "where it was.",
        "members cannot be read": "The other processes are not known now; the shares stay.",
        "first reading": "Documents that were there before recording are read.",
        "first reading done": "All of them are recorded.",
        "first reading interrupted": "It goes on where it was, in this or another process.",
        "history lost: reading the documents again": "The oplog no longer reaches back. What "
        "differs is recorded with a gap.",
        "a change could not be read: reading the documents again": "Its content is not known; "
        "what differs is recorded with a gap.",
        "collection is not recorded: tried again": "Another kind of collection has taken its "
        "place, or MongoDB refuses the archive's writes.",
        "collection is recorded again": "It goes on.",
        "event set aside": "No version can be made of an event: a fault of revstream. It lies in "
        "`revstream.setAside`. Please report it.",
        "set-aside event has no version": "Not even a gap can be recorded for it.",
        "version cannot be rebuilt exactly: read again, marked as a gap": "The state between two "
        "changes is not known.",
        "version not found in its layout: skipped": "A program has removed a version that it had "
        "written.",
        "version cannot be read": "The archive is damaged there: run `revstream verify`.",
        "layout recovered": "What a crash of a program had left between two writes is repaired.",
        "layout not recovered: tried again": "It cannot be repaired now.",
        "versions dropped": "Retention (`keep`) has deleted old versions.",
        "retention failed": "The next pass goes on.",
    },
    "Listeners, copies and webhooks": {
        "listener failed": "A listener of your own, a copier or a sink raised an error. It is "
        "tried again, and later versions wait.",
        "listener works again": "It goes on.",
        "history lost": "A listener was told that versions will never come.",
        "the archive is behind": "A listener waits for the recorder.",
        "copying": "A source with many copies has changed; they follow in chunks.",
        "copied": "All copies of a source are equal to it.",
        "copy refused": "MongoDB does not take a copy, as a validator of the collection.",
        "sink does not sign": "There is no secret for this URL (`--sink-secrets`).",
        "deliveries set aside": "A document's event was not accepted; it is tried again, and "
        "other documents go on.",
        "delivery parked": "It was tried often enough, and waits for `revstream deliveries`.",
        "delivery dropped": "An operator has dropped the event (`revstream deliveries drop`).",
        "receiver gone": "The receiver answers 410: remove the `@sink`, or repair the receiver.",
        "event cannot be sent": "A fault while an event was made. The line has a traceback.",
        "loss of history not delivered": "The receiver does not accept that versions will never "
        "come.",
    },
    "Requests and subscriptions": {
        "request refused": "An error of docs/reference/errors.md. The level is that of its code; "
        "of many equal ones one line in 10 s, with `more`.",
        "request failed": "A fault: the client has read the `incident`. The line has a traceback.",
        "compiled query failed": "A fault of an optimisation; the request was answered another "
        "way.",
        "broadcast group failed": "A fault; its subscriptions end, and subscribe again.",
        "event not sent to subscribers: it cannot be translated": "The recorder sets it aside, "
        "too.",
        "events not sent yet: MongoDB is unavailable": "They are sent later.",
        "record is neither a draft nor a comment: left out": "Another program has written to the "
        "collection of drafts or comments.",
        "no images of drafts and comments": "Subscriptions to drafts and comments have no state "
        "before a change.",
        "indexes of drafts or comments refused": "Lists of drafts and comments are slower.",
        "purged documents evicted": "A purge was noticed; what is in memory is forgotten.",
        "purges not read": "Tried again.",
    },
    "Access": {
        "keys read": "The JWKS was read; `keys` is their number.",
        "keys not read": "The JWKS cannot be read; the known keys stay valid. Without any, "
        "nobody can sign in.",
        "API keys read": "The file of API keys has changed, and is in force.",
        "API keys not read": "The file cannot be read; the last one stays in force.",
        "row rules use $sub, which these API keys do not have: they match no rows for them, unless "
        "their claims have a sub": "Give these keys a claim.",
        "origin refused": "A page of another address asked. `--allowed-origins` would allow it; or "
        "a proxy does not pass on `Host`.",
        "disconnected": "An administrator has ended the connections of a principal.",
    },
}


@cache
def _found() -> Mapping[str, tuple[set[str], set[str]]]:
    """Return levels and facts of each event."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for each in log_calls():
        levels, facts = found.setdefault(each.text, (set(), set()))
        levels.add("of its code" if each.level == "(computed)" else each.level.lower())
        facts |= each.facts
    return found


def _group(name: str) -> str:
    rows = []
    for event, meaning in EVENTS[name].items():
        levels, facts = _found()[event]
        shown = event.replace(": %s", ": …")
        rows.append(
            (
                code(shown),
                ", ".join(sorted(levels)),
                ", ".join(map(code, sorted(facts))),
                linked(meaning),
            )
        )
    return table(("event", "level", "facts", "meaning"), rows)


PARTS: dict[str, Callable[[], str]] = {
    f"log events {name}": partial(_group, name) for name in EVENTS
}
