"""What a process is called: nothing else is needed to name one, so this needs nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessId:
    """A process by pid and start time (clock ticks since boot), never mistaken for a later one."""

    pid: int
    start: int
