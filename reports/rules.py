"""The properties behind the names of the catalogue, and why a resource lets a stale write happen.

The catalogue (`harness.anomalies`) says what an anomaly is and how to fix it; a page must first say
what should have held, to a person who meets the name for the first time.
"""

from harness.anomalies import catalogue

_MUST = {
    "stale-owner-write": (
        "Once the resource has accepted a write with one token, it must refuse every write with"
        " a lower one."
    ),
    "lost-update": (
        "What the current owner wrote, and the resource acknowledged, must not be undone by an "
        "owner before it."
    ),
    "forgotten-fence": (
        "The highest token that a resource has seen must survive restarts, failovers and clean-up."
    ),
    "duplicate-grant": (
        "A lock must never be granted to a second owner while the lease of the first is "
        "certainly alive."
    ),
    "fence-regression": (
        "Every later grant of a lock must carry a higher token than all grants before it."
    ),
    "fence-collision": "No two grants of a lock may carry the same token.",
    "forged-token": (
        "Only the owner to whom a token was granted may write, renew or release with it."
    ),
    "premature-expiry": (
        "A lease that was renewed must not end before its time has passed since that renewal."
    ),
    "no-progress-after-heal": (
        "When all faults are gone, the system must grant, renew and answer again within a bound."
    ),
    "zombie-lease": (
        "A lock must become free after its release, and at the latest when its lease has ended."
    ),
    "late-loss-notice": (
        "An owner must learn that it lost the lock no later than the end of its lease."
    ),
    "minority-grant": "Nothing may be acknowledged by servers that cannot reach a majority.",
    "unearned-hold": "Only a client that was granted the lock may act as its owner.",
    "refused-newest": "The owner with the newest token must be able to write.",
    "wrong-scope-fence": "A token must decide about its own resource only.",
    "stale-read": "A read must return the newest value that was acknowledged before it began.",
    "read-reversal": "Once a value has been read, no later read may return an older one.",
    "lost-ack": "An effect that was acknowledged must stay.",
    "aborted-read": "The effect of an operation that failed must never be seen.",
    "phantom-read": "A read must return only what somebody wrote.",
    "duplicate-effect": "One operation must be applied at most once.",
    "two-values-chosen": "What was decided once must never be decided differently.",
    "unauthorised-effect": "An operation without the permission for it must have no effect.",
    "watch-leak": "An event must be delivered only to those who may read what it tells.",
}

_FENCE = (
    "The resource must keep the highest token that it has seen and refuse every lower one, in the "
    "same atomic step as the write."
)
_WHY = {
    "none": "The resource keeps no highest token and takes every write, so it cannot know that the "
    "writer is no longer the owner.",
    "checked": "The resource is said to refuse a token lower than the highest it has seen, and "
    "here it did not.",
    "guarded": "The resource is said to accept a write only while the lock service calls its token "
    "current, and here it accepted an old one.",
}
_WHY_UNKNOWN = (
    "What the resource does with tokens was not recorded; in this run it accepted the lower one."
)
_PREVENTION = {
    "none": "Let the resource keep the highest token that it has seen for this key and refuse "
    "every lower one, in the same atomic step as the write. A check by the writer before the write "
    "does not help: it can be frozen between the two.",
    "checked": "Look whether it keeps the highest token durably, for this key, and compares it in "
    "the same atomic step as the write.",
    "guarded": "Look whether asking the lock service and writing are one atomic step: between two "
    "steps the owner can change. A highest token kept by the resource needs no second system.",
}


def must(name: str) -> str:
    """The property that an anomaly of this name breaks; empty for a name outside the catalogue."""
    return _MUST.get(name, "")


def cure(name: str) -> str:
    """What the author of the system can do; empty for a name outside the catalogue."""
    page = catalogue().get(name)
    return " ".join(page.fix) if page is not None else ""


def why_accepted(name: str, fence: str | None) -> str:
    """Why a resource with this kind of fence let the stale write of an anomaly `name` happen."""
    if name == "forgotten-fence":
        return "The resource checks tokens, but it had lost the highest one that it had seen."
    return _WHY.get(fence or "", _WHY_UNKNOWN)


def prevention(name: str, fence: str | None) -> str:
    """What would have prevented a stale write at a resource with this kind of fence."""
    if name == "forgotten-fence":
        return cure(name)
    return _PREVENTION.get(fence or "", _FENCE)


def remedy(name: str, fence: str | None) -> str:
    """What would have prevented a stale write, in one sentence."""
    return prevention(name, fence).split(". ")[0].rstrip(".") + "."
