"""The exceptions of the harness, and what a user should do about each.

::

    WinkleError                 anything the harness says about itself
    ├── UsageError              the command line or the run file is wrong        (exit 254)
    ├── HarnessError            the harness or a target's start failed           (exit 255)
    │   ├── SandboxError        this machine forbids the local backend; names the step and ways out
    │   ├── RecordError         the run folder cannot be written any more (disk full)
    │   └── TargetError         a server of the target did not start; carries its last log lines
    └── MalformedHistoryError   a history breaks the rules; names line and reason

Outcomes of operations are not exceptions of this tree: see `harness.target.RefusedError`.
"""


class WinkleError(Exception):
    """Base class of all that the harness raises on purpose."""


class UsageError(WinkleError):
    """The command line or a run file is wrong; the message names every mistake at once."""


class HarnessError(WinkleError):
    """The run cannot go on for a reason that is not a finding about the target."""


class SandboxError(HarnessError):
    """The local backend cannot work here; the message names the step and the ways out."""


class TargetError(HarnessError):
    """A server did not start or died before the run; the message ends with its last log lines."""


class RecordError(HarnessError):
    """What happens cannot be written down (disk full, read-only): the run ends, nothing is lost."""


class MalformedHistoryError(WinkleError):
    """A history is not a history: `line` is 1-based, `reason` a sentence."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class HostLostError(HarnessError, OSError):
    """A host did not answer within its deadline, or its connection ended.

    An OSError for whoever just wanted something started there, and the end of a run that needs it.
    """
