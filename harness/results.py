"""`results.json`: the verdict of a run with all that stands beside it.

The schema is published (`docs/reference/results.schema.json`, generated from these types).  Reports
are pure functions of the evidence and of this record, and come out the same, byte by byte.
"""

from typing import Any

import msgspec

from harness.verdict import Verdict

FORMAT = 1


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """One judged run.

    `run` is the run folder's name; `command` repeats the run; `began` is UTC in ISO 8601.
    `leftover` lists what of a fault is still there after the run, and never replaces the verdict.
    `error` is set when the harness itself failed; `interrupted` when a person stopped the run.
    `first_finding_s` is the time of the earliest anomaly in seconds from the start of the run.
    `facts` are versions and other recorded strings (target versions, kernel, Python).
    """

    format: int = FORMAT
    run: str
    command: str
    began: str
    duration_s: float
    verdict: Verdict
    leftover: tuple[str, ...] = ()
    error: str | None = None
    interrupted: bool = False
    first_finding_s: float | None = None
    facts: dict[str, str] = {}


def encode(results: Results) -> bytes:
    """Return the record as indented JSON, the same bytes for the same record."""
    return (
        msgspec.json.format(msgspec.json.encode(results, order="deterministic"), indent=2) + b"\n"
    )


def decode(data: bytes) -> Results:
    """Return the record of a `results.json`; raises `msgspec.DecodeError`, `ValidationError`."""
    return msgspec.json.decode(data, type=Results)


def schema() -> dict[str, Any]:
    """Return the JSON schema of `results.json`."""
    return msgspec.json.schema(Results)
