"""Hard keys side by side, in as many processes as there are cores.

A process of its own takes 0.4 s to start, so keys are judged one after the other
until it is clear that there is work for longer than that.  Each process gets the columns and the
keys once, and then takes the number of a key at a time; what it says is taken in the order of the
keys, so that the verdict is the same as without it.  A process ends with its input, also in the
midst of a search: it does not outlive the one that started it.

All share the time, and each has its part of the memory.  What a part of the memory is not enough
for is judged again with all of it, and so is what fails in another way.  A key whose process was
killed is not: it stays undecided, because it may be what there was too little memory for.
"""

import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any, Self

import msgspec

_MODULE = "harness.checking.sidebyside"
_GRACE_S = 5.0


class Asked(msgspec.Struct, array_like=True):
    """The number of a key, and how many states its search may visit."""

    number: int
    steps: int


class Answer(msgspec.Struct, array_like=True):
    """What one process found of one key; `row` -1: it blames none.

    `failed`: it could not be judged there.  `ended`: the process ended before it was judged, and
    how.
    """

    legal: bool | None = None
    row: int = -1
    ret: int | None = None
    at: int = 0
    steps: int = 0
    paused: bool = False
    failed: bool = False
    ended: str = ""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """Processes that judge keys; used as a context, which leaves none of them."""

    def __init__(self, job: Any, count: int, seconds: float) -> None:
        """Start them; they should be done within so many seconds, and are killed soon after."""
        self._until = time.monotonic() + seconds + _GRACE_S
        self._selector = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._living = count
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: dict[int, int] = {}
        self._started = False  # whether any of them came so far as to take a key
        try:
            self._start(pickle.dumps(job))
        except BaseException:
            self.close()
            raise

    def _start(self, job: bytes) -> None:
        for _ in range(self._living):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the terminal is for the one that waits
            )
            self._processes.append(process)
            assert process.stdout is not None
            self._selector.register(process.stdout, selectors.EVENT_READ, process)
        for process in self._processes:
            _send(process, job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
        self._selector.close()

    def answers(self, numbers: Sequence[int], steps: int) -> Iterator[tuple[int, Answer]]:
        """Yield what is found of each key, in the order of the numbers."""
        todo = list(reversed(numbers))
        done: dict[int, Answer] = {}
        for number in numbers:
            while number not in done:
                while self._idle and todo:
                    process = self._idle.pop()
                    asked = msgspec.json.encode(Asked(todo[-1], steps)) + b"\n"
                    if _send(process, asked):
                        self._busy[process.pid] = todo.pop()
                if self._living:
                    self._wait(done)
                else:
                    lost = Answer(failed=not self._started, ended="no process is left to judge it")
                    done |= dict.fromkeys(todo, lost)
                    todo.clear()
            yield number, done.pop(number)

    def _wait(self, done: dict[int, Answer]) -> None:
        """Take in what is said next; processes that do not end in time are killed."""
        left = self._until - time.monotonic()
        ready = self._selector.select(None if left == float("inf") else max(0.0, left))
        if not ready:
            for process in self._processes:
                process.kill()
        for key, _ in ready:
            speaker: subprocess.Popen[bytes] = key.data
            assert speaker.stdout is not None
            line = speaker.stdout.readline()
            number = self._busy.pop(speaker.pid, None)
            if line:
                self._started = True
                self._idle.append(speaker)
                answer = msgspec.json.decode(line, type=Answer)
            else:
                self._selector.unregister(speaker.stdout)
                self._living -= 1
                self._idle = [each for each in self._idle if each is not speaker]
                answer = Answer(ended=f"the process that judged it ended ({speaker.wait()})")
            if number is not None:
                done[number] = answer


def _send(process: subprocess.Popen[bytes], data: bytes) -> bool:
    """Send something to a process; return whether it still lives."""
    assert process.stdin is not None
    try:
        process.stdin.write(data)
        process.stdin.flush()
    except BrokenPipeError:
        return False
    return True


def _listen(source: IO[bytes], asked: "SimpleQueue[Asked]") -> None:
    for line in source:
        asked.put(msgspec.json.decode(line, type=Asked))
    os._exit(0)


def main() -> None:
    """Judge keys by number, until the input ends."""
    job = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
    asked: SimpleQueue[Asked] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, asked), daemon=True).start()
    _say(Answer())  # it is ready
    while True:
        one = asked.get()
        try:
            answer = job(one.number, one.steps)
        except Exception:  # noqa: BLE001 - it is judged again where it can be told
            answer = Answer(failed=True)
        _say(answer)


def _say(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
