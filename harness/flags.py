"""The flags of `winkle run`, and how they become values of a run file.

They stay text until the run file's own checks read them, so that mistakes in flags and in the file
are said together and in the same words.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.mistakes import Path as Place

_TEXTS = (
    "lock",
    "store",
    "workload",
    "backend",
    "inventory",
    "compose",
    "servers",
    "ttl",
    "time",
    "op_timeout",
)
_NUMBERS = ("workers", "readers", "seed")
_WORKLOAD = ("keys", "think", "rate", "check")

Text = str | None


def _text(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


RunFile = Annotated[
    Path | None, typer.Argument(metavar="RUNFILE", help="A run file; flags override it.")
]
Lock = Annotated[Text, _text("T", "Lock service, like etcd or etcd[nodes=3].")]
Store = Annotated[Text, _text("T", "Store, like valkey or valkey[fenced=true].")]
Workload = Annotated[Text, _text("W", "What the workers do; fencing by default.")]
Faults = Annotated[
    list[str] | None, _text("F", "Like pause:who=holder,at=before-write,for=2.5leases; repeatable.")
]
Backend = Annotated[Text, _text("B", "Where the processes run; local by default.")]
Inventory = Annotated[Text, _text("FILE", "Backend ssh: the file with the hosts.")]
Compose = Annotated[Text, _text("FILE", "Backend docker: the compose file of a system of yours.")]
Servers = Annotated[Text, _text("GLOB", "Which services of it are servers; all by default.")]
Workers = Annotated[Text, _text("N", "Processes that want the lock; 3 by default.")]
Readers = Annotated[Text, _text("N", "Processes that only read; 1 by default.")]
Ttl = Annotated[Text, _text("TIME", "The lease that workers take; 2s by default.")]
Time = Annotated[Text, _text("TIME", "Length of the run; 15s by default.")]
OpTimeout = Annotated[Text, _text("TIME", "After this an outcome is unknown; 1s by default.")]
Seed = Annotated[Text, _text("N", "Random, and recorded, when not given.")]
Keys = Annotated[Text, _text("N", "Workload: how many keys.")]
Think = Annotated[Text, _text("TIME", "Workload: time between check and write.")]
Rate = Annotated[Text, _text("R", "Workload: rounds a second.")]
Check = Annotated[bool | None, typer.Option(help="Workload: ask for the lease before a write.")]
StopOnFailure = Annotated[
    bool, typer.Option("--stop-on-failure", help="End the main phase at the first finding seen.")
]
Repeat = Annotated[int, typer.Option(metavar="K", min=1, help="K runs, their seeds one apart.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run folders go.")]
Checkers = Annotated[Text, _text("W", "Checkers for a bare history of ours; fencing by default.")]
Model = Annotated[Text, _text("M", "Judge by a model: register, cas, fenced, mutex, kv and so on.")]
Format = Annotated[
    str, typer.Option("--format", metavar="F", help="auto|jsonl|jepsen|porcupine|maelstrom")
]
Initial = Annotated[Text, _text("V", "What a key holds at first, as JSON; nil by default.")]
CasFail = Annotated[
    Text, _text("R", "A failed cas: differed|did-not-happen; as the format has it.")
]
NilRead = Annotated[Text, _text("R", "A read of nil: value|anything; as the format has it.")]
Named = Annotated[Text, _text("NAME", "What the history calls this operation.")]
Budget = Annotated[str, _text("TIME", "After this a search gives up: unknown.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


def values(given: Mapping[str, Any]) -> dict[Place, Any]:
    """Return the flags that were given, by the place of their value in a run file."""
    from harness.brackets import parse_scalar

    found: dict[Place, Any] = {}
    for name in (*_TEXTS, *_NUMBERS, *_WORKLOAD):
        value = given.get(name)
        if value is None:
            continue
        if name not in _TEXTS and isinstance(value, str):
            value = parse_scalar(value)
        found[("workload", "options", name) if name in _WORKLOAD else (name,)] = value
    if given.get("stop_on_failure"):
        found["stop_on_failure",] = True
    if given["fault"]:
        found["faults",] = list(given["fault"])
    return found
