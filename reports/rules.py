"""The properties behind the names of the catalogue: what must hold, and what makes it hold.

Written for a person who meets the name for the first time, so without words that need a glossary.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`must`: the property as one sentence.  `cure`: what would have prevented the anomaly."""

    must: str
    cure: str


_STALE = Rule(
    "Once the resource has accepted a write with one token, it must refuse every write with a lower one.",
    "The resource must keep the highest token that it has seen and refuse every lower one, in the "
    "same atomic step as the write.",
)

RULES: dict[str, Rule] = {
    "stale-owner-write": _STALE,
    "lost-update": Rule(
        "What the current owner wrote, and the resource acknowledged, must not be undone by an owner before it.",
        _STALE.cure,
    ),
    "forgotten-fence": Rule(
        "The highest token that a resource has seen must survive restarts, failovers and clean-up.",
        "The resource must store its highest token as durably as the data, and replicate it with the data.",
    ),
    "duplicate-grant": Rule(
        "A lock must never be granted to a second owner while the lease of the first is certainly alive.",
        "The lock service must grant only what a majority (or one durable place) has recorded, and end "
        "a lease by its own clock only.",
    ),
    "fence-regression": Rule(
        "Every later grant of a lock must carry a higher token than all grants before it.",
        "The token must come from a counter that is as durable as the lock and only ever grows.",
    ),
    "fence-collision": Rule(
        "No two grants of a lock may carry the same token.",
        "The token must be drawn in the same atomic step as the grant.",
    ),
    "forged-token": Rule(
        "Only the owner to whom a token was granted may write, renew or release with it.",
        "The service must compare the caller with the owner of the grant, not only the name of the key.",
    ),
    "premature-expiry": Rule(
        "A lease that was renewed must not end before its time has passed since that renewal.",
        "The service must acknowledge a renewal only after the new end is recorded where expiry is decided.",
    ),
    "zombie-lease": Rule(
        "A lock must become free after its release, and at the latest when its lease has ended.",
        "Every lock must have an end in time that the service enforces itself.",
    ),
    "late-loss-notice": Rule(
        "An owner must learn that it lost the lock no later than the end of its lease.",
        "The client must stop by its own monotonic clock when it could not renew in time.",
    ),
    "minority-grant": Rule(
        "Nothing may be acknowledged by servers that cannot reach a majority.",
        "A grant or write must be acknowledged only after a majority has recorded it.",
    ),
    "unearned-hold": Rule(
        "Only a client that was granted the lock may act as its owner.",
        "The client must treat every answer that is not a grant as: not the owner.",
    ),
    "refused-newest": Rule(
        "The owner with the newest token must be able to write.",
        "The resource must learn tokens only from grants or accepted writes, never from guesses.",
    ),
    "wrong-scope-fence": Rule(
        "A token must decide about its own resource only.",
        "The resource must keep the highest token for each lock separately, or tokens must be global.",
    ),
    "stale-read": Rule(
        "A read must return the newest value that was acknowledged before it began.",
        "Reads must go through the same agreement as writes, or the leader must prove that it still leads.",
    ),
    "read-reversal": Rule(
        "Once a value has been read, no later read may return an older one.",
        "Reads must go through the same agreement as writes, or stay with one up-to-date replica.",
    ),
    "lost-ack": Rule(
        "An effect that was acknowledged must stay.",
        "The system must acknowledge only what is durable on as many replicas as it promises.",
    ),
    "aborted-read": Rule(
        "The effect of an operation that failed must never be seen.",
        "The system must report failure only when the effect can no longer happen.",
    ),
    "phantom-read": Rule(
        "A read must return only what somebody wrote.",
        "Look for damaged data, mixed keys, or a second writer that the run does not know.",
    ),
    "duplicate-effect": Rule(
        "One operation must be applied at most once.",
        "Every operation needs an identity of its own by which the system recognises a repeat.",
    ),
    "two-values-chosen": Rule(
        "What was decided once must never be decided differently.",
        "A decision needs overlapping majorities, and promises that survive a restart.",
    ),
    "unauthorised-effect": Rule(
        "An operation without the permission for it must have no effect.",
        "The permission must be checked where the effect happens, in the same step.",
    ),
    "watch-leak": Rule(
        "An event must be delivered only to those who may read what it tells.",
        "The permission must be checked for each event at the time of its delivery.",
    ),
}

_STORE: dict[str | None, tuple[str, str]] = {
    "none": (
        "The resource keeps no highest token and takes every write. It cannot know that the writer is "
        "no longer the owner, and no lock service can tell it in time: the write was already on its way.",
        "Let the resource keep the highest token that it has seen for this key and refuse every lower "
        "one, in the same atomic step as the write. A check by the writer before the write does not "
        "help: it can be frozen between the two.",
    ),
    "checked": (
        "The resource is said to refuse a token lower than the highest it has seen, and here it did not.",
        "Look whether it keeps the highest token durably, for this key, and compares it in the same "
        "atomic step as the write.",
    ),
    "guarded": (
        "The resource is said to accept a write only while the lock service calls its token current, "
        "and here it accepted an old one.",
        "Look whether asking the lock service and writing are one atomic step: between two steps the "
        "owner can change. A highest token kept by the resource itself needs no second system.",
    ),
    None: (
        "What the resource does with tokens was not recorded; in this run it accepted the lower one.",
        _STALE.cure,
    ),
}


def rule(name: str) -> Rule | None:
    """The property that an anomaly of this name breaks; None for a name outside the catalogue."""
    return RULES.get(name)


def why_accepted(fence: str | None) -> str:
    """Why a resource with this kind of fence let a stale write happen."""
    return _STORE.get(fence, _STORE[None])[0]


def prevention(fence: str | None) -> str:
    """What would have prevented a stale write at a resource with this kind of fence."""
    return _STORE.get(fence, _STORE[None])[1]
