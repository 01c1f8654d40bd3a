"""What goes wrong outside of the system under test: told in words, judged, and nothing is left."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import NOOP

pytestmark = pytest.mark.sandbox

TARGET = """
import os, sys
from harness import Server
class Client:
    def __init__(self): {connect}
    def read(self, key): {read}
    def write(self, key, value, token): return None
    def close(self): pass
class Mine:
    "A target for tests."
    name = "mine"
    fence = "none"
    def servers(self): return {servers}
    def store(self, cluster, timeout_s): return Client()
"""


def winkle(
    tmp_path: Path, *arguments: str, before: Callable[[], None] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness.cli", "run", *arguments],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=before,
    )


def run_mine(
    tmp_path: Path, servers: str = "[]", connect: str = "pass", read: str = "return None"
) -> tuple["subprocess.CompletedProcess[str]", Path]:
    target = tmp_path / "mine.py"
    target.write_text(TARGET.format(servers=servers, connect=connect, read=read))
    out = tmp_path / "runs"
    flags = ("--lock", "atlasmart", "--store", f"{target}:Mine", "--time", "1s")
    alone = ("--workers", "1", "--readers", "0")
    done = winkle(tmp_path, *flags, *alone, "--out", str(out))
    assert not list((tmp_path / "state").glob("vanwinkle/ledgers/*"))
    return done, (out / "latest").resolve()


def unknown_texts(folder: Path) -> list[str]:
    results = json.loads((folder / "results.json").read_bytes())
    assert results["verdict"]["verdict"] == "unknown"
    return [reason["text"] for reason in results["verdict"]["unknown"]]


def test_a_server_that_ends_at_once_shows_its_last_lines(tmp_path: Path) -> None:
    script = "print('config: no such port 99999'); raise SystemExit(3)"
    servers = f'[Server("s1", [sys.executable, "-S", "-c", {script!r}], port=7000)]'
    done, folder = run_mine(tmp_path, servers=servers)
    assert done.returncode == 255
    assert "server s1 ended" in done.stderr
    assert "config: no such port 99999" in done.stderr
    assert "config: no such port 99999" in (folder / "report.html").read_text()


def test_a_server_whose_program_is_missing(tmp_path: Path) -> None:
    done, _ = run_mine(tmp_path, servers='[Server("s1", ["/no/such/program"], port=7000)]')
    assert done.returncode == 255
    assert "server s1 cannot be started" in done.stderr


def test_a_placeholder_that_does_not_exist(tmp_path: Path) -> None:
    done, _ = run_mine(tmp_path, servers='[Server("s1", ["x", "{nothing}"], port=7000)]')
    assert done.returncode == 255
    assert "no placeholder 'nothing'" in done.stderr


def test_a_client_that_cannot_connect(tmp_path: Path) -> None:
    done, _ = run_mine(tmp_path, connect='raise OSError("no route to my service")')
    assert done.returncode == 255
    assert "no route to my service" in done.stderr


def test_a_client_that_ends_its_process(tmp_path: Path) -> None:
    done, folder = run_mine(
        tmp_path, read='print("dying words", file=sys.stderr, flush=True); os._exit(7)'
    )
    assert done.returncode == 2
    said = "\n".join(unknown_texts(folder))
    assert "it ended with exit code 7" in said
    assert "dying words" in said
    ops = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert any(op["type"] == "info" and "exit code 7" in op["error"] for op in ops)


def test_a_client_that_breaks_its_contract(tmp_path: Path) -> None:
    done, folder = run_mine(tmp_path, read='return "a bare string"')
    assert done.returncode == 2
    assert "read returned str, it must return Stored or None" in "\n".join(unknown_texts(folder))


def test_values_of_any_kind_come_through_as_text(tmp_path: Path) -> None:
    value = "</script><img src=x onerror=alert(1)>\\n'\\\"&amp;\\x00\\ud800" + "y" * 1_000_000
    read = f'from harness import Stored; return Stored("{value}", 1)'
    done, folder = run_mine(tmp_path, read=read)
    assert done.returncode == 1, done.stderr
    assert "phantom-read" in done.stdout  # nobody wrote it
    page = (folder / "report.html").read_text("utf-8")
    assert "<img" not in page
    assert "<script" not in page
    assert len(page) < 2_000_000


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    flags = ("--lock", f"{NOOP}:Noop", "--store", f"{NOOP}:Noop", "--out", "/proc/nothing")
    done = winkle(tmp_path, *flags)
    assert done.returncode == 255
    assert "the run folder cannot be made" in done.stderr


def test_a_full_disk_stops_the_run_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the same error path, without a mount."""
    limit = 300_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    out = tmp_path / "runs"
    flags = ("--lock", f"{NOOP}:Noop", "--store", f"{NOOP}:Noop", "--time", "30s")
    more = ("--workload", f"{NOOP}:Flood", "--out", str(out))
    done = winkle(tmp_path, *flags, *more, before=small_files)
    assert done.returncode == 255, done.stderr
    assert "the record cannot be written" in done.stderr
    history = (out / "latest" / "history.jsonl").read_bytes()
    assert limit - 1000 < len(history) <= limit
    assert any("cannot be written" in text for text in unknown_texts(out / "latest"))
