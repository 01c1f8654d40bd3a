"""Anomalies of the resource: what it accepted although the owner had changed."""

from harness.anomalies import Page

PAGES = (
    Page(
        "stale-owner-write",
        "The resource accepted a write with a lower token after it had accepted, or shown, a higher"
        " one.",
        (
            "The holder is paused (garbage collection, a frozen container, a swapped page, a suspended"
            " virtual machine) between its check of the lease and its write; the lease ends, another"
            " worker takes over, and the first one wakes up and writes.",
            "The write was sent in time but sat in a socket, a proxy or a queue until after the"
            " takeover.",
            "The resource never looks at tokens, or the service hands out none.",
        ),
        """
w1  acquire(1)  check ok  ~~~~~~~~ frozen ~~~~~~~~  write A (1)  -> ok, wrong
w2                    lease of w1 ends  acquire(2)  write B (2)  -> ok
""",
        (
            "Give each grant a token that grows, send it with each write, and let the resource refuse"
            " a token that is lower than the highest it has seen, in the same atomic step as the"
            " write.",
            "Where the resource cannot compare tokens, write in one transaction that also checks that"
            " the lock is still held (etcd: compare the lock key's create revision).",
            "A second check of the lease before the write makes the gap shorter and never closes it.",
        ),
    ),
    Page(
        "lost-update",
        "An acknowledged write of the current owner was overwritten, or is gone, because of a stale"
        " owner.",
        (
            "A stale owner writes what it computed from an old read; the new owner's acknowledged"
            " write disappears under it.",
            "Read, compute, write is protected by the lock only, and the lock had changed hands.",
        ),
        """
w1  read 10  ~~~~~~~ frozen ~~~~~~~  write 11  -> ok
w2             acquire  read 10  write 20 -> ok     20 is gone
""",
        (
            "Fence the writes (see stale-owner-write).",
            "Or make the write conditional on what was read: a version, a revision, an ETag.",
        ),
    ),
    Page(
        "forgotten-fence",
        "A stale owner's write was accepted because the resource had lost the highest token that it"
        " had seen.",
        (
            "The highest token is kept in memory, or in a file that is not synced, and the resource"
            " restarts.",
            "A replica that never received the highest token is promoted.",
            "The entry that held the token expired or was collected as garbage.",
        ),
        """
store  accept(2)  refuse(1)  -- restart: highest token forgotten --  accept(1)  wrong
""",
        (
            "Store the token with the data, in the same durable write.",
            "After a failover, refuse writes until the highest token is known again.",
            "Never let the entry that holds the token expire before every lease that could still be"
            " alive has ended.",
        ),
    ),
    Page(
        "forged-token",
        "A write, a renewal or a release was accepted with a token that was never granted to that"
        " caller.",
        (
            "The check compares the name of the worker or of the lock, not the token.",
            "Several tasks of one process share one slot for the token.",
            "Tokens are small numbers that can be guessed, and nothing ties one to its owner.",
        ),
        """
lock  grant(1) to w1        release by w2 with no grant  -> ok, wrong
w3                                            acquire -> ok while w1 holds
""",
        (
            "Compare the token that the caller was given, atomically with the effect.",
            "Keep the token with the grant and not with the thread, the process or the lock's name.",
        ),
    ),
    Page(
        "wrong-scope-fence",
        "A token of one resource decided about another.",
        (
            "One counter of highest tokens serves many keys, while each lock counts for itself.",
            "A lock was deleted and made anew under the same name, and its counter began again.",
        ),
        """
key a  accept(7)
key b  write with its newest token (3)  -> refused: 7 belongs to key a
""",
        (
            "Keep the highest token for each resource, or draw all tokens from one counter.",
            "Let a lock's counter outlive the lock.",
        ),
    ),
    Page(
        "refused-newest",
        "A write with the newest granted token was refused, although no higher token can have been"
        " used.",
        (
            "The resource compares tokens as texts: 10 is lower than 9.",
            "It demands a token that is greater than the last one, so the owner's second write fails.",
            "It counts a token as seen before the write that carried it is known to have happened.",
        ),
        """
w1  acquire(9)   write(9)  -> ok
w2  acquire(10)  write(10) -> refused, and nobody holds a higher token
""",
        (
            "Compare numbers as numbers, and accept a token equal to the highest one.",
            "Raise the highest token only together with the write.",
        ),
    ),
    Page(
        "fence-regression",
        "A later grant carries a token that is not greater than an earlier one.",
        (
            "The counter lives in memory, or in storage that lost its last writes.",
            "The token is taken from a wall clock, which was set back.",
            "After a failover the new leader counts from an older copy.",
        ),
        """
lock  grant(5)  release   -- restart --   grant(4)  wrong
""",
        (
            "Derive the token from the log that orders the grants: its index, revision or zxid.",
            "Never derive it from a clock or from a counter outside of consensus.",
        ),
    ),
    Page(
        "fence-collision",
        "Two grants share one token.",
        (
            "The token is the identity of the caller, and two callers have the same one.",
            "The token is the revision of the response's header and not that of the lock's own key.",
            "Two servers count for themselves.",
        ),
        """
lock  grant(6) to w1   ...   grant(6) to w2   wrong: a fence cannot tell them apart
""",
        (
            "One token for each grant, drawn where the grants are ordered.",
            "Take the token from the lock's own entry.",
        ),
    ),
)
