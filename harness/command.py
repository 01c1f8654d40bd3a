"""A program of somebody else's, run to its end in bounded time: how it ended, and what it said."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.local import namespaces


@dataclass(frozen=True)
class Ended:
    """How it ended: `code` is None when its time was over and it was killed."""

    code: int | None
    said: bytes

    @property
    def lines(self) -> list[str]:
        """What it printed, on either stream, as lines of text."""
        return self.said.decode(errors="backslashreplace").strip().splitlines()


def carry_out(
    argv: Sequence[str],
    bound_s: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command without input, at most `bound_s` seconds.  Raises OSError.

    It dies with the thread that started it: what it would still do after the end of ours is what
    nobody would undo.
    """
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=bound_s,
            preexec_fn=partial(namespaces.die_with_parent, signal.SIGKILL),
        )
    except subprocess.TimeoutExpired as late:
        return Ended(None, late.stdout or b"")
    return Ended(done.returncode, done.stdout)
