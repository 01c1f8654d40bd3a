"""What the reference says beside the code: the sentences that no docstring has a place for.

A table here must have exactly the names that the code has; `docs.generate` stops when it has not.
"""

ANOMALIES = """\
A verdict names its findings with these words and no others. `winkle explain NAME` prints a page of
this catalogue. The catalogue is larger than what this version looks for: *judged by* says which
workload can find the anomaly today. How a finding is proven is told in
[verdicts](../explanation/verdicts.md) and [stale owner](../explanation/stale-owner.md)."""

CLI = """\
Results go to standard output, everything else to standard error. Colours are used on a terminal
only, and not with `NO_COLOR`.

| exit code | of a run or a check | of a suite |
| --- | --- | --- |
| 0 | pass | every run as expected |
| 1 | fail | a run not as expected |
| 2 | unknown: the run cannot be judged | |
| 130 | interrupted; healed and judged up to there | interrupted |
| 254 | wrong usage or run file; nothing was started | the same |
| 255 | the harness failed | a run broke |

With `--repeat` the gravest code counts: 130, then 255, then 1, then 2, then 0. `winkle doctor`
returns 1 when something is missing that every run needs."""

FAULTS = """\
A fault is one entry of `faults:` in a [run file](run-file.md), or one `--fault`. `winkle list
faults` prints the kinds. Why they work as they do is told in
[faults](../explanation/faults.md)."""

FAULT_DEFAULTS = {"at": "before-write"}

ROLES = {
    "holder": "the worker that believes that it holds a lock when the fault begins; at a phase, "
    "the worker that passes it",
    "waiter": "a worker that tries to get the lock and does not hold it",
    "reader": "the first worker that only reads (`r1`)",
    "leader": "the server that leads the lock service now, where the target can say it (its "
    "ability `Leader`)",
    "follower": "the first server of the lock service that does not lead",
    "minority": "as many servers of the lock service as it can lose and keep a majority",
    "majority": "the smallest majority of the servers of the lock service",
    "all": "all servers of the lock service",
    "store": "the servers of the store",
    "worker:N": "worker N of those that want the lock; its name, `wN`, does as well",
    "server:N": "server N of the lock service; its name, like `etcd2`, does as well",
}
NUMBERED = ("worker:N", "server:N")

PHASES_HEAD = """\
Only `holder`, `worker:N` and a worker's name pass phases, and `waiter` the phase `queued`; any
other role needs a time or `random`.
With `at:` a phase, a worker is told to stop itself exactly there, so the fault hits every time.
After the window the fault comes again at the next such phase, one lease later (or after `every`),
until `count` or the end of the run. The first trap is laid a quarter of a lease after the start, or
at the time `after`."""

PHASES = {
    "queued": "the worker stands in the queue for the lock, behind somebody else (workload option"
    " `wait`)",
    "acquired": "the worker has just been granted the lock",
    "lease-checked": "the worker was told that it holds the lock, and has not yet thought",
    "before-write": "the worker has thought, and its next step is to send the write",
    "renewing": "the renewal is on record and has not been sent",
}

PROTOCOL = """\
How the controller and a worker process talk. In this version the controller always starts the
project's own Python worker (`python -m harness.worker`); see
[another language](../howto/write-a-worker-in-another-language.md) for what to do today. The schema
is [worker-protocol.schema.json](worker-protocol.schema.json): a line to a worker fits
`#/properties/to_worker`, a line from one fits `#/properties/from_worker`."""

PROTOCOL_EXAMPLE = """\
-> {"type":"hello","protocol":1,"worker":"w1","lock":{"name":"atlasmart","options":{}},\
"store":{"name":"atlasmart","options":{}},"servers":{"lock":[{"name":"lock1",\
"address":"10.77.0.11","port":7201,"role":"lock","data":"/data/lock1"}],"store":[]},\
"ttl_s":2.0,"op_timeout_s":1.0}
<- {"type":"ready","protocol":1,"abilities":["stop_at"]}
-> {"type":"op","id":0,"f":"acquire","key":"k0","value":{"ttl_s":2.0}}
<- {"type":"belief","key":"k0","token":1,"holds":true,"left_s":1.996,"why":"granted"}
<- {"type":"done","id":0,"result":"ok","value":{"ttl_s":2.0},"token":1}
<- {"type":"phase","phase":"acquired","id":0,"key":"k0","token":1}
-> {"type":"op","id":2,"f":"check","key":"k0","value":{"ask":true,"think_ms":20},"token":1,\
"stop_at":"before-write"}
<- {"type":"phase","phase":"lease-checked","id":2,"key":"k0","token":1}
<- {"type":"ask","ask":1,"f":"renew","key":"k0","token":1}
-> {"type":"go","id":4,"ask":1}
<- {"type":"phase","phase":"renewing","id":4,"key":"k0","token":1}
<- {"type":"done","id":4,"result":"ok"}
<- {"type":"phase","phase":"before-write","id":2,"key":"k0","token":1,"stopping":true}
<- {"type":"phase","phase":"before-write","id":2,"key":"k0","token":1,"resumed":true}
<- {"type":"done","id":2,"result":"ok","value":{"held":true}}
-> {"type":"op","id":6,"f":"write","key":"k0","value":"w1-0","token":1}
<- {"type":"done","id":6,"result":"fail","error":"fenced: token 1 against 2, the highest accepted"}
"""

RESULTS = """\
The verdict of a run with all that stands beside it. `winkle check RUN_DIR` writes it again from the
evidence alone. The schema is [results.schema.json](results.schema.json). Times in `_ns` are
nanoseconds from the start of the run; `ops` are positions in `history.jsonl`, from 0."""

REASONS = {
    "malformed": "The history breaks the rules of a history; nothing follows from it.",
    "vacuous": "Too little happened before, during or after the faults for a pass to mean "
    "something: for `fencing` at least one takeover while the old owner was out, and at least one "
    "stale write attempted.",
    "fault-not-effective": "A fault that was asked for was never proven to be in force.",
    "checker-limit": "Judging took more time or memory than allowed.",
    "harness-error": "The harness, an adapter or a checker failed.",
}

STATS = {
    "operations": "for each operation, how many ended `ok`, `fail`, `info`, or stayed `open`",
    "takeovers": "grants that were superseded by a later one before their worker turned away",
    "stale_attempts": "writes asked for, accepted or refused after a later owner had the lock",
    "stale_refused": "those of them that were refused",
    "stale_accepted": "stale-owner-writes and forgotten-fences",
    "acked_writes": "writes acknowledged",
    "lost_writes": "acknowledged writes lost to stale writes",
    "late_effects": "writes with unknown outcome that took effect",
    "forged_attempts": "writes, renewals and releases with a token that their caller never had",
    "forged_refused": "of these, the refused ones",
    "lost_places": "acquires that were answered after their lease had ended in the queue",
    "lost_places_refused": "how many of them were refused",
}

MARGINS = "Distances to trouble, in seconds or shares; `null` where the run had no such case."

RUN_FILE = """\
A run file is YAML. Every mistake in it is reported at once, with line and column, what was found
and what is allowed. Flags of `winkle run` override it key by key. The schema is
[run.schema.json](run.schema.json)."""

INVENTORY = """\
The hosts of `winkle run --backend ssh --inventory FILE`, as YAML. Every mistake in it is reported
at once, with line and column. [Run on hosts over SSH](../howto/hosts-over-ssh.md) shows a whole
one. The schema is [inventory.schema.json](inventory.schema.json)."""

INVENTORY_HOST = """\
All but `name`, `local`, `address`, `peer_address`, `host_key` and `nodes` may stand in
`defaults`."""

RUN_DEFAULTS = {
    "workload": "fencing",
    "faults": "[]",
    "ttl": "2s",
    "time": "15s",
    "op_timeout": "1s",
    "seed": "random",
}

DURATIONS = """\
A length of time is a number and a unit: `us`, `ms`, `s`, `m`, `h`. In `at`, `for` and `every` of a
fault the unit may be `leases`: `2.5leases` with `ttl: 2s` are 5 seconds."""

SPELLINGS = """\
`name[option=value,...]` stands for a target or workload with options and
`kind:key=value,key=value` for a fault, in run files and flags alike. Values are `true`, `false`,
whole numbers, numbers, and otherwise text; quotes make any value text. A target is a name of
`winkle list targets`, an import like `package.module:Name`, or a file like `./mylock.py:Name`; a
relative path is taken from the folder in which `winkle` is started."""

RUN_EXAMPLE = """\
lock: etcd
store: valkey[fenced=true]
faults:
  - pause:who=holder,at=before-write,for=2.5leases
ttl: 2s
time: 15s
seed: 1
"""

LONG_FORM = "A whole run file in short spellings:"

SAME = """\
The same run as it is recorded in the `run.yaml` of its run folder, which adds the key `recorded`
(versions, the time, the store's fence):"""

RUN_FOLDER = """\
A run folder is `runs/<UTC time>-<lock>-<store>-<workload>-<seed>/`; `runs/latest` points to the
newest. A verdict follows from the folder alone. Files of JSON lines are only ever appended to; a
last line without its line feed was cut off and is left out. Fields that have their default value
are not written to `history.jsonl`, `notes.jsonl` and `faults.jsonl`."""

OPERATIONS = """\
A worker has two lanes, each a sequence of processes: the main one runs the operations of the
workload, the other the renewals that the worker asks for itself. After an `info` a lane goes on
under a new process number.

| operation | invoked with | ok | fail |
| --- | --- | --- | --- |
| `acquire` | `value.ttl_s`, `value.wait_s` where it queues | `token`, `value.ttl_s` as granted \
| `held`; of a queue `not-holder` |
| `keep` | `token` | | `not-holder` |
| `renew` | `token` | | `not-holder` |
| `read` | | `value` and `token`, both absent when nothing was ever written | |
| `check` | `token`, `value.ask`, `value.think_ms` | `value.held`: true, false, or null | |
| `write` | `value`, `token` | `value.over`: what was overwritten, where the store says it \
| `fenced`, `not-holder` |
| `release` | `token` | | `not-holder` |

`keep` is the renewal of a lease whose owner still queues for the lock, on the lane of the renewals.
A refusal begins with its code word, any other `fail` with `no-effect:`. `check` is the question
"do I still hold it?" together with the time to think before the write, so a worker that is frozen
before its write is frozen inside this operation."""

SUITES = """\
A suite file is YAML with `about` (one line) and `runs`: a list whose entries have the keys of a
[run file](run-file.md) and those below. All runs are checked before the first one starts. The
schema is [suite.schema.json](suite.schema.json)."""

TARGETS = """\
The systems that this version can test without more code; `winkle list targets` prints their
options. A target of your own is [one file](../howto/write-a-target.md)."""

MODELS = """What `winkle check --model` knows. Operations with other names are
[mapped](../howto/check-other-histories.md#models-and-names). Where each written value names its
write, most are judged by sorts and sweeps, O(n log n); the rest, and repeated values, by a search
within `--budget`."""

WORKLOADS = "What the workers do, and how the history is judged; `winkle list workloads`."

WORKLOAD_MORE = {
    "fencing": """\
The flags `--keys`, `--think`, `--rate` and `--check` set the options of the same name. The
operations are listed in [run folder](run-folder.md), the properties in
[anomalies](anomalies.md).""",
    "access": """\
It judges `unauthorised-effect` and `watch-leak`. Workers invoke `write` and `read`; strangers
invoke `own` (which they may), `foreign-read`, `foreign-write` and `foreign-watch`, each of which
ends in `denied` or shows in `value` what was shown, let through, or sent.""",
}

EXCHANGE = """\
`->` goes to the worker, `<-` comes from it. The worker stops itself before its write, sleeps
through its lease, is resumed, and finds its write refused. (Lines are broken here for the page.)"""
