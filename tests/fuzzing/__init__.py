"""Fuzzing: raw BSON documents of any kind that MongoDB accepts, through the whole pipeline.

`make fuzz`, or `python -m tests.fuzzing --minutes 60 --seed N`.

    raw writes ──▶ MongoDB ──▶ gateway ──▶ archive, reads, subscribers, a sink, copies, verify
    (recorded)                             (compared with the recorded writes)

| module          | |
|---|---|
| `raw_documents` | documents drawn byte by byte: every type, odd names, duplicates, depth |
| `collections`   | the model, with each layout, and its collections |
| `writer`        | inserts, replacements, updates, deletions; records the document after each |
| `subscribers`   | clients of all changes, and their events |
| `questions`     | queries over HTTP, of current documents and as of a time point |
| `checker`       | compares archive, events and responses with the recorded writes |
| `run`           | rounds of all that |

A seed repeats the writes. A finding about a document shows its writes.
"""
