"""A host that no longer answers."""

from harness.errors import HarnessError


class HostLostError(HarnessError, OSError):
    """A host did not answer within its deadline, or its connection ended.

    An OSError for whoever just wanted something started there, and the end of a run that needs it.
    """
