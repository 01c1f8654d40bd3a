"""Verdicts: pass, fail or unknown, and what they rest on.

What cannot be judged is unknown, never pass.  When verdicts are combined, fail beats unknown beats
pass.  A clean-up problem is reported beside the verdict and never replaces it.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal

import msgspec

Outcome = Literal["pass", "fail", "unknown"]
_RANK: dict[Outcome, int] = {"pass": 0, "unknown": 1, "fail": 2}


class Reason(StrEnum):
    """Why a run could not be judged."""

    MALFORMED = "malformed"
    VACUOUS = "vacuous"
    FAULT_NOT_EFFECTIVE = "fault-not-effective"
    CHECKER_LIMIT = "checker-limit"
    HARNESS_ERROR = "harness-error"


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for not judging, with a sentence for a person."""

    reason: Reason
    text: str


class Anomaly(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding: a name of the catalogue, a sentence, and the ops that prove it.

    `ops` are indexes into the history, in the order in which a person should read them; the last
    one is the op that is wrong.  `time_ns` is when it went wrong.  `size_s` is the finding's size
    in seconds where it has one (how stale, how late).  `certain` is False when the ops alone leave
    another reading, which the sentence then names.  `details` holds what the picture needs.
    """

    name: str
    sentence: str
    ops: tuple[int, ...]
    time_ns: int
    key: str | None = None
    size_s: float | None = None
    certain: bool = True
    details: dict[str, Any] = {}


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked: `checked` counts the cases that could have broken it."""

    name: str
    verdict: Outcome
    checked: int
    broken: int
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one run or history.

    `anomalies` come gravest first; `headline` is one sentence that tells what happened.  `stats`
    are counts; `margins` are distances to trouble in seconds, or shares (see `docs/reference`).
    `notes` are observations that are no findings (beliefs that overlapped, late executions).
    """

    verdict: Outcome
    headline: str
    anomalies: tuple[Anomaly, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    properties: tuple[Property, ...] = ()
    stats: dict[str, Any] = {}
    margins: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the combined outcome: fail beats unknown beats pass; nothing at all is unknown."""
    return max(outcomes, key=_RANK.__getitem__, default="unknown")


def decide(anomalies: Iterable[Anomaly], unknown: Iterable[Unknown]) -> Outcome:
    """Return the outcome that findings and reasons for unknown make together."""
    if tuple(anomalies):
        return "fail"
    return "unknown" if tuple(unknown) else "pass"
