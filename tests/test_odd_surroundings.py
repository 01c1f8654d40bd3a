"""Odd callers: closed or full streams, no HOME, signals before the run has begun."""

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import BOUND_S, NOOP, live_run, until

pytestmark = pytest.mark.sandbox

WORDS = [sys.executable, "-P", "-m", "harness.cli", "run", "--lock", f"{NOOP}:Noop"]
RUN = [*WORDS, "--store", f"{NOOP}:Noop", "--workload", f"{NOOP}:Flood", "--time", "200ms"]
RUN += ["--workers", "1", "--readers", "0"]
MUTE = """
import sys
from harness import Server

class Mute:
    "A target whose server never answers."
    name = "mute"
    fence = "none"
    def servers(self):
        return [Server("s1", [sys.executable, "-S", "-c", "import time; time.sleep(99)"], port=7)]
    def lock(self, cluster, timeout_s): ...
    store = lock
"""


def environment(tmp_path: Path) -> dict[str, str]:
    return dict(os.environ) | {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.mark.parametrize("closed", [0, 1, 2, (0, 1, 2)])
def test_closed_streams_change_no_verdict(tmp_path: Path, closed: int | tuple[int, ...]) -> None:
    numbers = (closed,) if isinstance(closed, int) else closed

    def close() -> None:
        for number in numbers:
            os.close(number)

    out = tmp_path / "runs"
    done = subprocess.run(
        [*RUN, "--out", str(out)],
        env=environment(tmp_path),
        stdout=None if 1 in numbers else subprocess.PIPE,
        stderr=None if 2 in numbers else subprocess.PIPE,
        preexec_fn=close,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "latest" / "results.json").read_bytes())["error"] is None


@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_full_and_broken_outputs_change_no_verdict(tmp_path: Path, which: str) -> None:
    read, broken = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for fd in (broken, full):
            done = subprocess.run(
                [*RUN, "--out", str(tmp_path / "runs")],
                env=environment(tmp_path),
                stdout=fd if which == "stdout" else subprocess.DEVNULL,
                stderr=fd if which == "stderr" else subprocess.DEVNULL,
                check=False,
            )
            assert done.returncode == 0
    finally:
        os.close(broken)
        os.close(full)


def test_without_home_the_ledger_is_where_the_user_lives(tmp_path: Path) -> None:
    bare = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_STATE_HOME")}
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    if not os.access(home, os.W_OK):
        pytest.skip("this user's home cannot be written")
    words = [*RUN, "--out", str(tmp_path / "runs")]
    done = subprocess.run(words, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nohup_keeps_a_run_alive_when_its_terminal_goes(tmp_path: Path) -> None:
    words = ["2s" if word == "200ms" else word for word in RUN]
    run = subprocess.Popen(
        ["nohup", *words, "--out", str(tmp_path / "runs")],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: list(tmp_path.glob("runs/2*/history.jsonl")), "the run to begin")
    os.kill(run.pid, signal.SIGHUP)
    assert run.wait(timeout=BOUND_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_main_phase(tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "mute.py"
    target.write_text(MUTE)
    with live_run(tmp_path, f"lock: {target}:Mute\nstore: {target}:Mute\n") as run:
        until(lambda: run.ledger() is not None, "the run to start its server")
        namespace = run.namespace()
        until(lambda: len(run.members(namespace)) >= 3, "the server")
        os.kill(run.process.pid, number)
        assert run.process.wait(timeout=BOUND_S) == 130
        assert not run.members(namespace)
        assert run.ledger() is None
        assert "Traceback" not in (tmp_path / "stderr").read_text()
        assert json.loads((run.folder() / "results.json").read_bytes())["interrupted"]
