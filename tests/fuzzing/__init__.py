"""Any document that MongoDB takes, through the whole pipeline: raw BSON, by a plain program.

`make fuzz`, or `python -m tests.fuzzing --minutes 60 --seed N`.

    raw writes ──▶ MongoDB ──▶ gateway ──▶ archive, reads, subscribers, a sink, copies, verify
    (noted)                                (compared with the notes)

| module          | |
|---|---|
| `raw_documents` | documents drawn byte by byte: every type, odd names, duplicates, depth |
| `collections`   | the model, with each way to keep versions, and its collections |
| `writer`        | inserts, replacements, updates, deletions; notes what is stored after each |
| `subscribers`   | clients of all changes, and what they were sent |
| `questions`     | what is asked over HTTP, now and as of a moment |
| `checker`       | compares archive, events and answers with the notes |
| `run`           | rounds of all that |

A seed repeats the writes. A finding about a document shows its writes.
"""
