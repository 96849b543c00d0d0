"""Fault injection: archive and subscriptions under faults, compared with all writes.

`make faults`, or `python -m tests.faults --minutes 20 --rate 300 --fault-every 10 --seed N`.

    writers ──▶ ┌─────────┐ proxies ┌──────────┐ ──▶ subscribers
    (the truth) │ mongods │ ◀─────▶ │ gateways │     (what they received)
                └─────────┘         └──────────┘
                   ▲ killed, stepped down, cut off, slow, full, gone, clock wrong
                                       ▲ killed, ended, stopped, cut off

| module        | |
|---|---|
| `cluster`     | three mongods; members of the replica set by their proxies' addresses |
| `network`, `proxy` | one proxy per mongod that identifies its clients: pairs are cut or delayed |
| `gateways`    | `revstream serve` processes, and a supervisor that restarts them |
| `clock`       | wall clocks that jump, for one process each, where there is a C compiler |
| `truth`, `documents`, `writers` | the load, and the results that its writers got |
| `subscribers` | clients that resume with their last token, at any gateway |
| `receivers`   | a webhook receiver that refuses deposed processes, and its deliveries |
| `fences`      | leases and checkpoints, sampled all the time |
| `faults`, `mongod_faults`, `gateway_faults`, `stage` | faults and repairs, by a schedule |
| `checker`     | compares archive and streams with the truth; independent of revstream's code |
| `run`         | runs all of it |

A seed repeats the schedule and the drawn values, but not the interleaving of processes and
elections.
"""
