"""The sandbox: whichever process dies, nothing is left, and the history is judged up to there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import procfs
from harness.heal import heal
from harness.ledger import Ledger
from harness.local import advice
from harness.local.sandbox import StepFailed
from harness.procfs import boot_id
from tests.live import BOUND_S, NOOP, LiveRun, live_run, stretched, until

PAUSED = f"""
lock: {NOOP}:Noop
store: {NOOP}:Noop
workload: "{NOOP}:Hold[think_ms=10]"
workers: 2
readers: 0
time: 40s
faults:
  - pause:who=holder,at=before-write,for=30s
"""
NOTHING_LEFT_S = 2.0


def mounts() -> list[str]:
    """What is mounted where a sandbox mounts; elsewhere others may mount meanwhile."""
    rows = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [" ".join(row) for row in rows if row[4].startswith(("/proc", "/dev/shm", "/sys"))]


@pytest.mark.sandbox
@pytest.mark.parametrize("victim", ["outer", "helper", "init", "harness"])
def test_nothing_is_left_after_sigkill_during_a_pause(tmp_path: Path, victim: str) -> None:
    before = mounts()
    with live_run(tmp_path, PAUSED) as run:
        until(run.fault_in_force, "a worker to be stopped")
        namespace = run.namespace()
        assert len(run.members(namespace)) >= 4
        os.kill(run.chain()[victim], signal.SIGKILL)
        bound_s = stretched(NOTHING_LEFT_S)
        until(lambda: not run.members(namespace), f"the sandbox to go with {victim}", bound_s)
        run.process.wait()
        assert mounts() == before
        judged(run, by_outer=victim != "outer")
        closed = heal(tmp_path / "state" / "vanwinkle" / "ledgers")
        assert [line.split(": ")[1] for line in closed] == ["nothing is left of it"]
        assert run.ledger() is None


def judged(run: LiveRun, *, by_outer: bool) -> None:
    """The history up to the kill is on disk, and is judged without any target."""
    folder = run.folder()
    assert (folder / "results.json").exists() == by_outer
    if by_outer:
        assert run.process.returncode == 255
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "harness.cli", "check", str(folder), "--json"],
        capture_output=True,
        check=False,
    )
    results = json.loads(checked.stdout)
    assert checked.returncode == 2, checked.stderr
    assert results["verdict"]["stats"]["calls"] > 0
    assert "the harness died" in results["verdict"]["unknown"][-1]["text"]


@pytest.mark.sandbox
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_heals_judges_and_exits_130(
    tmp_path: Path, number: signal.Signals
) -> None:
    with live_run(tmp_path, PAUSED) as run:
        until(run.fault_in_force, "a worker to be stopped")
        namespace = run.namespace()
        os.kill(run.process.pid, number)
        assert run.process.wait(timeout=BOUND_S) == 130
        assert not run.members(namespace)
        results = json.loads((run.folder() / "results.json").read_bytes())
        assert results["interrupted"]
        lines = (run.folder() / "faults.jsonl").read_text().splitlines()
        windows = [json.loads(line) for line in lines]
        assert windows[0]["grade"] == "installed"
        assert windows[0]["off"]["holds"]
        assert run.ledger() is None


def test_heal_continues_exactly_the_process_that_a_dead_ledger_names(tmp_path: Path) -> None:
    ledgers = tmp_path / "ledgers"
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(argv) as named, subprocess.Popen(argv) as other:
        try:
            for process in (named, other):
                process.send_signal(signal.SIGSTOP)
                until(lambda p=process: state(p.pid) == "T", "a stop")  # type: ignore[misc]
            start = procfs.start_ticks(named.pid)
            wrong = procfs.start_ticks(other.pid)
            assert start is not None
            assert wrong is not None
            ledger = Ledger(ledgers / "dead.jsonl", tmp_path, "local")
            processes = [[named.pid, start], [other.pid, wrong + 1]]
            ledger.add("pause", "w1", {"what": "resume", "processes": processes})
            assert heal(ledgers) == ["dead: still running, left alone"]
            assert state(named.pid) == "T"
            assert ledger.close() == [0]
            said = heal(ledgers)
            assert said == [f"dead: continued process {named.pid} of w1 (pause)"]
            until(lambda: state(named.pid) != "T", "the named process to go on")
            assert state(other.pid) == "T"
            assert not list(ledgers.iterdir())
        finally:
            named.kill()
            other.kill()


def state(pid: int) -> str:
    return procfs.thread_states(pid)[pid]


def test_heal_touches_nothing_of_an_earlier_boot_or_a_damaged_ledger(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text('{"boot": "another", "pid_namespace": 1}\n')
    assert "from before the last boot" in heal(tmp_path)[0]
    for text in ("rubbish", "5", "null", '"entry"', '{"a": 1}', f'{{"boot": "{boot_id()}"}}'):
        (tmp_path / "odd.jsonl").write_text(f"{text}\n")
        assert "nothing was touched, and it stays" in heal(tmp_path)[0]
        assert (tmp_path / "odd.jsonl").exists()
    (tmp_path / "odd.jsonl").unlink()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "link.jsonl").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert all("nothing was touched" in line for line in heal(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.sandbox
def test_a_machine_without_user_namespaces_is_told_the_step_and_the_way_out(
    tmp_path: Path,
) -> None:
    """The refusal is real: a user namespace in which no further namespace may be made."""
    probe = """
import os
from pathlib import Path

from harness.local import advice, namespaces, sandbox

maps = {"setgroups": "deny", "uid_map": f"1000 {os.geteuid()} 1"}
maps["gid_map"] = f"1000 {os.getegid()} 1"
namespaces.unshare(namespaces.NEWUSER)
for name, text in maps.items():
    Path("/proc/self", name).write_text(text)
Path("/proc/sys/user/max_user_namespaces").write_text("0")
left = sandbox.launch("harness.local.probe")
print(left.code, advice.explain(left.failed))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", probe], capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine allows no user namespace at all")
    assert done.stdout.startswith("125 the sandbox cannot be made: unshare"), done.stderr
    assert "ENOSPC" in done.stdout
    assert "run with sudo, or raise it" in done.stdout


@pytest.mark.parametrize(
    ("step", "error", "settings", "words"),
    [
        (
            "write /proc/self/setgroups",
            13,
            {"kernel/apparmor_restrict_unprivileged_userns": "1"},
            "AppArmor profile",
        ),
        ("unshare: new namespaces", 1, {}, "seccomp=unconfined"),
        ("unshare: new namespaces", 1, {"kernel/unprivileged_userns_clone": "0"}, "set it to 1"),
        ("unshare: new namespaces", 28, {}, "raise it"),
        ("make mounts private", 1, {}, "security module"),
        ("mount a private /proc", 95, {}, "Docker backend"),
    ],
)
def test_each_refusal_has_its_way_out(
    monkeypatch: pytest.MonkeyPatch, step: str, error: int, settings: dict[str, str], words: str
) -> None:
    monkeypatch.setattr(advice, "_setting", settings.get)
    text = advice.explain(StepFailed(step, error, "refused"))
    assert step in text
    assert words in text


def test_other_systems_are_sent_to_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Exception, match="Docker backend"):
        advice.require_linux()
