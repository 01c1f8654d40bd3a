"""The order of findings, and the one sentence that tells what a run showed."""

from collections.abc import Iterable, Sequence

import msgspec

from harness.verdict import Anomaly, Outcome, Unknown
from workloads._words import count
from workloads.substance import Tally

# Gravest first: damage to the data, then broken promises of the lock, then wrong answers.
GRAVITY = (
    "stale-owner-write",
    "forgotten-fence",
    "lost-update",
    "lost-ack",
    "duplicate-grant",
    "minority-grant",
    "forged-token",
    "fence-collision",
    "fence-regression",
    "aborted-read",
    "phantom-read",
    "stale-read",
    "premature-expiry",
    "unearned-hold",
    "refused-newest",
    "late-loss-notice",
    "no-progress-after-heal",
    "zombie-lease",
)
# These rest on the claim that an operation failed for certain; the others hold without it.
_RESTS_ON_FAILURES = frozenset(
    {"aborted-read", "refused-newest", "premature-expiry", "zombie-lease"}
)


def gravest_first(anomalies: Iterable[Anomaly]) -> tuple[Anomaly, ...]:
    """Return the findings in the order in which a person should read them.

    Each says in its details whether it is `robust`: it holds also if every `fail` were unknown.
    """
    ranked = sorted(anomalies, key=lambda a: (GRAVITY.index(a.name), not a.certain, a.time_ns))
    return tuple(
        msgspec.structs.replace(
            anomaly, details={**anomaly.details, "robust": anomaly.name not in _RESTS_ON_FAILURES}
        )
        for anomaly in ranked
    )


def headline(
    outcome: Outcome, anomalies: Sequence[Anomaly], unknown: Sequence[Unknown], summed: Tally
) -> str:
    """Return one sentence about the run."""
    if outcome == "fail":
        return anomalies[0].sentence
    if outcome == "unknown":
        return f"Not judged. {unknown[0].text}"
    if not summed.attempts and summed.forged:
        return (
            f"{count(summed.forged_refused, 'use')} of a token that was never granted to its user"
            f" {'was' if summed.forged_refused == 1 else 'were'} refused, of {summed.forged} tried."
        )
    if not summed.attempts and summed.lost_places:
        return (
            f"{count(summed.lost_places, 'lease')} ended in the queue for the lock, and the service"
            f" refused the lock to {summed.lost_refused} of the owners."
        )
    takeovers = count(summed.takeovers, "takeover")
    attempts = count(summed.attempts, "stale write")
    if not summed.refused:
        return (
            f"Nothing is wrong after {takeovers}: of {attempts} attempted,"
            " each came before the newer owner had written, or has an unknown outcome."
        )
    rest = summed.attempts - summed.refused
    more = ""
    if rest:
        which = "the other one" if rest == 1 else f"the other {rest}"
        more = f"; {which} came before the newer owner had written, or has an unknown outcome"
    return (
        f"The resource refused {count(summed.refused, 'stale write')} (of {summed.attempts}"
        f" attempted) after {takeovers}{more}."
    )
