"""Never loses, never lies: revstream under faults, compared with what was written.

`make faults`, or `python -m tests.faults --minutes 20 --rate 300 --fault-every 10 --seed N`.

    writers ──▶ ┌─────────┐ proxies ┌──────────┐ ──▶ subscribers
    (the truth) │ mongods │ ◀─────▶ │ gateways │     (what they were told)
                └─────────┘         └──────────┘
                   ▲ killed, stepped down, cut off, slow, full, gone, out of time
                                       ▲ killed, ended, stopped, cut off

| module        | |
|---|---|
| `cluster`     | three mongods; members of the replica set by their proxies' addresses |
| `network`, `proxy` | one proxy per mongod that knows who connects: pairs are cut or slowed |
| `gateways`    | `revstream serve` processes, and a supervisor that brings them back |
| `clock`       | wall clocks that jump, for one process each, where there is a C compiler |
| `truth`, `documents`, `writers` | the load, and what its writers were told |
| `subscribers` | clients that go on with their last token, at any gateway |
| `receivers`   | the receiver of a sink, which refuses zombies, and what it took |
| `fences`      | leases and checkpoints, looked at all the time |
| `faults`, `mongod_faults`, `gateway_faults`, `stage` | what is broken and mended, by a schedule |
| `checker`     | compares archive and streams with the truth; knows nothing of revstream's code |
| `run`         | plays all of it |

A seed repeats the schedule and what is drawn, not the interleaving: processes and elections have
their own time.
"""
