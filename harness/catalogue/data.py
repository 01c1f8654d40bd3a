"""Anomalies of data and of permissions: what was read, lost, done twice or seen by the wrong ones."""

from harness.anomalies import Page

PAGES = (
    Page(
        "two-values-chosen",
        "A single decision was decided twice.",
        (
            "A voter forgot its vote in a restart.",
            "Two majorities need not overlap: membership changed in one step by more than one.",
        ),
        """
w1  decide -> A
w2  decide -> B   wrong: it was decided already
""",
        (
            "Write votes to disk before they are answered.",
            "Change the membership one server at a time, or with joint majorities.",
        ),
    ),
    Page(
        "lost-ack",
        "An acknowledged effect is gone.",
        (
            "The write was acknowledged before it was durable, and the server lost it.",
            "The leader that acknowledged it was replaced by a copy that never had it.",
        ),
        """
w1  write A -> ok
r1                 -- restart or failover --   read -> before A   wrong
""",
        (
            "Acknowledge after the disk, and after a majority, have it.",
            "Where that is too slow, say so to the callers: then it is no acknowledgement.",
        ),
    ),
    Page(
        "stale-read",
        "A read returned a value that is older than one already acknowledged.",
        (
            "A replica, a cache or an isolated old leader answered.",
            "The leader's own lease is longer than it may be, because clocks run differently.",
        ),
        """
w1  write A -> ok   write B -> ok
r1                                  read -> A   wrong
""",
        (
            "Confirm the leadership for each read (read index), or read through the log.",
            "Or offer it as what it is: a read that may be old, with its revision.",
        ),
    ),
    Page(
        "read-reversal",
        "A read returned a value that is older than one already read.",
        (
            "Two reads went to two replicas, the second of which was behind.",
            "A write that nobody acknowledged was seen, and later lost.",
        ),
        """
r1  read -> B
r2              read -> A   wrong: A was before B
""",
        (
            "Pin a session to a revision that never goes back.",
            "Do not show what is not yet committed.",
        ),
    ),
    Page(
        "aborted-read",
        "The effect of an operation that had failed was seen.",
        (
            "The error did not prove that nothing happened: a time-out, a lost leader, a closed"
            " connection.",
            "Half of the operation had been carried out.",
        ),
        """
w1  write A -> fail (certainly not done)
r1                                        read -> A   wrong
""",
        (
            "Answer `failed` only where it is certain, and `unknown` otherwise.",
            "In a target of your own: look at its table of errors first.",
        ),
    ),
    Page(
        "phantom-read",
        "A value was read that nobody wrote.",
        (
            "Damaged data was returned without a check of its checksum.",
            "Data of another key, another run or another tenant was returned.",
        ),
        """
w1  write A -> ok
r1                 read -> Q   wrong: nobody ever wrote Q
""",
        (
            "Check what is read from disk and from the network.",
            "Look for a cache whose key is too short.",
        ),
    ),
    Page(
        "duplicate-effect",
        "One logical operation was applied twice.",
        (
            "A client library or a proxy sent it again after a time-out.",
            "A request that sat in a socket was carried out after its caller had tried again.",
        ),
        """
w1  add 1 -> time-out   (library sends it again)   -> ok
r1                                                   read -> 2   wrong
""",
        (
            "Give each operation an identity, and let the server remember it.",
            "Or make the operation conditional, so that the second one is refused.",
        ),
    ),
    Page(
        "unauthorised-effect",
        "An operation succeeded without the permission for it.",
        (
            "Permission is looked at where the request enters, and not where it is carried out.",
            "It was withdrawn, and an open connection or a cached decision went on.",
        ),
        """
admin  withdraw(w1) -> ok
w1                          write -> ok   wrong
""",
        (
            "Check the permission in the same order in which the effects are decided.",
            "Close or check again what was opened under a permission that has gone.",
        ),
    ),
    Page(
        "watch-leak",
        "An event was delivered to somebody without the permission for it.",
        (
            "Permission is checked when the watch begins, and never again.",
            "The range that is watched is wider than the range that was checked.",
        ),
        """
admin  withdraw(w1) -> ok
w2                          write -> ok
w1                                       event of that write   wrong
""",
        (
            "Check each event against the permission of its receiver.",
            "End the watches when a permission is withdrawn.",
        ),
    ),
)
