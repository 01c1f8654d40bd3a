"""The Docker backend: the harness is a process of this machine, all nodes are containers.

Outer waits for the harness and removes what it left; if outer dies as well, the reaper does.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.backend import Left
from harness.docker import sweep
from harness.docker.engine import EngineError, connect
from harness.docker.lab import DockerLab
from harness.local import sandbox
from harness.spec import RunSpec


def require() -> None:
    """Stop where no engine answers, and remove what dead runs left.  Raises EngineError.

    What cannot be removed is told, and hinders nobody.
    """
    api = connect()
    try:
        sweep.sweep(api)
    except EngineError as error:
        sys.stderr.write(f"winkle: {error}; `winkle heal` tries it again\n")
    finally:
        api.close()


def launch(folder: Path) -> Left:
    """Let the run live in a process of its own, and remove what it left."""
    left = sandbox.launch("harness.docker.main", str(folder))
    with contextlib.suppress(EngineError):  # the reaper goes on trying
        require()
    return Left(left.code)


def build(names: Sequence[str], spec: RunSpec, folder: Path) -> DockerLab:
    """Build the nodes.  Raises EngineError."""
    return DockerLab(names, spec, folder)
