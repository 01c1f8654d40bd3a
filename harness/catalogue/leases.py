"""Anomalies of the lock service and of its clients: who held what, and for how long."""

from harness.anomalies import Page

PAGES = (
    Page(
        "duplicate-grant",
        "The certain holds of two grants of one lock overlap.",
        (
            "A replica that had not received the grant was promoted, and granted the lock again.",
            "A wall clock jumped forward and ended a lease early; or a majority forgot its votes in a"
            " restart.",
            "A waiter whose own lease had ended in the queue was granted the lock together with the"
            " next one.",
            "A late release, without a check of the owner, freed somebody else's lock.",
        ),
        """
w1  acquire -> ok(1) |======== certain hold ========|
w2              acquire -> ok(2) |==== certain hold ====|
                                 ^ both hold
""",
        (
            "Grant through consensus, and acknowledge only what a majority has made durable.",
            "Measure leases with a monotonic clock.",
            "Look at the lease of a waiter again at the moment of the grant.",
            "And fence the resource, since a paused holder looks the same to it.",
        ),
    ),
    Page(
        "minority-grant",
        "A grant or a write was acknowledged while its servers provably could not reach a majority.",
        (
            "Replication is asynchronous: the isolated old leader goes on answering.",
            "A leader trusts a lease of its own whose length the others do not know.",
        ),
        """
majority  | s2 s3 |  elect a new leader, grant(2) to w2
minority  | s1    |  still leader in its own eyes, grant(1) to w1   wrong
""",
        (
            "Acknowledge only after a majority has answered.",
            "Let a leader step down before the others may elect the next one.",
        ),
    ),
    Page(
        "unearned-hold",
        "A client acted as the holder after an answer that was not a grant.",
        (
            "The client library turns an error or a time-out into success.",
            "A renewal extends whatever key is there, without looking whose it is.",
        ),
        """
w1  acquire -> time-out (nobody knows)   write   wrong: this is no grant
""",
        (
            "Only a positive answer that names the caller is a grant.",
            "After an unknown outcome ask again, or wait until the lease must have ended.",
        ),
    ),
    Page(
        "premature-expiry",
        "A lease ended although a renewal was acknowledged within its TTL.",
        (
            "The renewal was acknowledged by a server that then forgot it.",
            "Time to live is kept as a date on a wall clock, and the clock jumped.",
            "The renewal extended from the first grant and not from now.",
        ),
        """
w1  acquire(1)   renew -> ok |------ TTL ------|
w2                            acquire(2) -> ok   wrong: too early
""",
        (
            "Make renewals as durable as grants.",
            "Count leases on a monotonic clock, from the renewal.",
        ),
    ),
    Page(
        "late-loss-notice",
        "The holder learned of its loss, or still believed that it held, later than one TTL after its"
        " last acknowledged renewal.",
        (
            "The client waits for the service to tell it, and the service cannot reach it.",
            "The thread that renews died or gave up, and nobody was told.",
            "The client counts from the answer to its renewal and not from the request.",
        ),
        """
w1  renew -> ok |------ TTL ------|..... still believes .....| learns of its loss
                                  ^ others may hold from here
""",
        (
            "Let the client end its own hold, TTL after it *sent* the last renewal that was"
            " acknowledged, by its own monotonic clock.",
            "Stop the work when the renewals stop.",
        ),
    ),
    Page(
        "zombie-lease",
        "The lock stayed held after its release, or past its TTL and a margin.",
        (
            "The lock was taken, but the answer was lost: nobody knows that he should release it.",
            "A renewal set the key without its expiry.",
            "Lock and unlock went through different connections of a pool.",
        ),
        """
w1  acquire(1)  release -> ok
w2                            acquire -> held   acquire -> held   ...   wrong
""",
        (
            "Give every lock an expiry, set in the same step as the lock.",
            "After an unknown outcome of an acquire, release with the same identity.",
        ),
    ),
)
