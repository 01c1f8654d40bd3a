"""Ends of a call of which a client knows that it changed nothing.

A target may call these `fail`; whatever else ends a call leaves its outcome unknown.
"""


class NotConnectedError(Exception):
    """There was no connection to any server, so no request was sent."""


class NotAskedError(Exception):
    """An acquire ended before anybody was asked for the lock.

    Only what changes nothing was tried, or a session or lease was made that holds nothing.
    """


class ChangedMeanwhileError(Exception):
    """The value changed between the look at its token and the write, so the write was not done."""
