"""The agent: a node's processes are all that come of it, and none of them outlives the agent."""

import ast
import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import procfs
from harness.clocks import Lie, Skew
from harness.errors import HostLostError
from harness.heal import heal
from harness.ledger import Ledger
from harness.node import Killable, Pausable, Threads
from harness.site import DataFolder, Disk
from harness.ssh import bundle
from harness.ssh.inventory import Host
from harness.ssh.node import SshNode
from harness.ssh.station import Station
from tests.live import until
from tests.support_agent import Started, agent, living, place, sleeping

pytestmark = pytest.mark.sandbox


def oldest() -> str | None:
    """Return the oldest Python here that an agent may have, older than the harness's own."""
    for version in ("3.8", "3.9", "3.10"):
        path = shutil.which(f"python{version}")
        if path is None:
            continue
        said = subprocess.run(
            [path, "-c", "import ctypes, sys; print(sys.executable)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode == 0:  # else it is a version manager's word for one that is not chosen
            return said.stdout.strip()
    return None


# A daemon as many are: it left its parent, its group and its session, and ignores SIGTERM.
DAEMON = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep {0}; sleep {0}' &); sleep {0}"


def daemon(seconds: int) -> list[str]:
    return ["sh", "-c", DAEMON.format(seconds)]


def test_output_ends_and_failed_starts_come_back(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        with agent() as station:
            node = place(station)
            async with Started(node, ["sh", "-c", "echo out; echo err >&2; exit 3"], log) as it:
                assert await it.end() == "exit code 3"
            assert log.read_text() == "out\nerr\n"
            async with Started(node, ["/nowhere/server"], log) as it:
                assert "No such file or directory: /nowhere/server" in await it.end()
            assert log.read_text().endswith("/nowhere/server\n")
            async with Started(node, ["sh", "-c", "kill -9 $$"], log) as it:
                assert await it.end() == "signal SIGKILL"

    asyncio.run(main())


def test_a_worker_is_talked_to_through_pipes(tmp_path: Path) -> None:
    """Whatever bytes, more of them than pipes hold, and what was said last comes before the end."""
    sent = bytes(range(256)) * 8192

    async def main() -> None:
        with agent() as station:
            argv = [sys.executable, "-c", "import shutil, sys; shutil.copyfileobj(*IO)"]
            argv[-1] = argv[-1].replace("*IO", "sys.stdin.buffer, sys.stdout.buffer")
            async with Started(place(station), argv, tmp_path / "log", pipes=True) as it:
                reading = asyncio.to_thread(read_all, it.child.stdout)
                await asyncio.to_thread(write_all, it.child.stdin, sent)
                assert await reading == sent
                assert await it.end() == "exit code 0"

    asyncio.run(main())
    assert (tmp_path / "log").read_text() == ""


def read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


def write_all(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def test_a_node_is_stopped_resumed_and_killed_whole_and_alone(tmp_path: Path) -> None:
    async def main() -> None:
        with agent() as station:
            node, other = place(station, "a"), place(station, "b")
            assert isinstance(node, Pausable)
            assert isinstance(node, Killable)
            async with (
                Started(node, daemon(1001), tmp_path / "a") as it,
                Started(other, daemon(1001), tmp_path / "b"),
            ):
                until(lambda: sleeping(1001) == 4, "daemons")
                until(lambda: len(node.processes()) == len(other.processes()) == 4, "no more")
                node.stop("one")
                node.stop("two")
                until(lambda: node.threads() == Threads(4, 4), "all threads to be stopped")
                node.resume("one")
                assert node.held()
                assert node.threads().stopped == 4
                node.resume("two")
                until(lambda: node.threads().stopped == 0, "all threads to go on")
                node.kill(kindly=True)
                until(lambda: other.threads() == Threads(4, 0), "the other to go on as before")
                assert node.threads().total > 0, "they ignore SIGTERM"
                node.stop("one")
                node.kill()
                until(lambda: not node.processes(), "the end of stopped processes")
                assert await it.end() == "signal SIGKILL"
                assert len(other.processes()) == 4

    asyncio.run(main())


@pytest.mark.parametrize("victim", ["guard", "agent"])
def test_whichever_process_of_the_agent_is_killed_nothing_is_left(
    tmp_path: Path, victim: str
) -> None:
    seconds = {"guard": 1002, "agent": 1003}[victim]

    async def main() -> None:
        with agent() as station:
            node = place(station)
            async with Started(node, daemon(seconds), tmp_path / "log") as it:
                until(lambda: sleeping(seconds) == 2, "a daemon")
                node.stop("one")
                guard = station.link._carrier._process.pid  # type: ignore[attr-defined]
                (inner,) = children(guard)
                os.kill({"guard": guard, "agent": inner}[victim], signal.SIGKILL)
                until(lambda: not living(f"sleep {seconds}"), "everything to go with it", 5.0)
                assert "the connection ended" in await it.end()
            with pytest.raises(HostLostError, match="the connection ended"):
                node.processes()
            with pytest.raises(OSError, match="the connection ended"):
                node.stop("one")

    asyncio.run(main())


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]


def test_silence_for_as_long_as_the_lease_ends_all(tmp_path: Path) -> None:
    """The controller is frozen: its end of the pipe stays open, nothing tells of its death."""
    script = f"""
import os, signal, sys
from pathlib import Path
from tests.support_agent import agent, place
from tests.test_ssh_agent import daemon
with agent(lease_s=1.0) as station:
    node = place(station)
    node.spawn(daemon(1004), log=Path({str(tmp_path / "log")!r}))
    while len(node.processes()) < 4:
        pass
    node.stop("one")
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        node.processes()
    except OSError as error:
        print(error)
"""
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == b"ready\n"
        until(lambda: not living("sleep 1004"), "the lease to end all", 10.0)
        frozen.send_signal(signal.SIGCONT)
        said = frozen.stdout.read().decode()
        assert "host here: " in said
        assert "nothing was heard for 1 s: the agent ends" in said


def test_an_agent_that_does_not_answer_is_lost_within_its_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        with agent(lease_s=1.0) as station:
            async with Started(place(station), daemon(1005), tmp_path / "log") as it:
                guard = station.link._carrier._process.pid  # type: ignore[attr-defined]
                (inner,) = children(guard)
                os.kill(inner, signal.SIGSTOP)
                told = await it.end()
                assert "nothing was heard of it for 1." in told, told
                os.kill(inner, signal.SIGCONT)

    asyncio.run(main())
    assert not living("sleep 1005")


def test_data_folders_and_disks_are_those_of_the_local_backend() -> None:
    with agent() as station:
        node = place(station)
        assert isinstance(node, Disk)
        assert isinstance(node, DataFolder)
        assert node.try_to_write() == ""
        node.fill("one")
        assert node.limited()
        assert node.try_to_write() == "ENOSPC"
        node.make_whole("one")
        node.forbid_writes("one")
        assert node.try_to_write() == "EROFS"
        node.make_whole("one")
        assert node.free_bytes() > 0
        empty = node.digest()
        node.keep("old")
        with pytest.raises(FileNotFoundError) as raised:
            node.change("file", 0, b"x")
        assert raised.value.errno == errno.ENOENT
        assert node.digest("old") == empty
        node.put_back("old", aside="new")
        assert node.files() == {}


def test_a_folder_of_the_host_is_removed_at_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        with agent(data=tmp_path) as station:
            node = place(station)
            assert not isinstance(node, Disk)
            assert isinstance(node, DataFolder)
            write = ["sh", "-c", f"printf '\\000\\377' >{node.data}/file"]
            async with Started(node, write, tmp_path / "log") as it:
                assert await it.end() == "exit code 0"
            assert node.read("file") == b"\0\xff"
            node.change("file", 1, b"\x01\x02")
            node.cut("file", 2)
            assert node.read("file") == b"\0\x01"
            assert node.files() == {"file": 2}

    asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_without_namespaces_processes_are_known_by_a_mark() -> None:
    """The refusal is real: an ordinary user, and a limit of no further namespace at all."""
    script = """
import os, sys, tempfile
from pathlib import Path
from harness.local import namespaces as ns
from tests.live import until
from tests.support_agent import agent, living, place, sleeping
from tests.test_ssh_agent import daemon

maps = {"setgroups": "deny", "uid_map": f"1000 {os.geteuid()} 1"}
maps["gid_map"] = f"1000 {os.getegid()} 1"
ns.unshare(ns.NEWUSER)
for name, text in maps.items():
    Path("/proc/self", name).write_text(text)
Path("/proc/sys/user/max_user_namespaces").write_text("0")
with tempfile.TemporaryDirectory() as folder:
    with agent(data=Path(folder)) as station:
        print(station.means, station.reason)
        node, other = place(station, "a"), place(station, "b")
        node.spawn(daemon(1006), log=Path(folder, "a"))
        other.spawn(daemon(1006), log=Path(folder, "b"))
        until(lambda: sleeping(1006) == 4, "daemons")
        until(lambda: len(node.processes()) == len(other.processes()) == 4, "no more")
        node.kill()
        until(lambda: not node.processes(), "the end of one")
        print(len(other.processes()))
    until(lambda: not living("sleep 1006"), "the end of all", 5.0)
    print(sorted(os.listdir(folder)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    if "Operation not permitted" in done.stderr and not done.stdout:
        pytest.skip("this machine allows no user namespace at all")
    assert done.stdout.splitlines()[1:] == ["4", "['a', 'b']"], done.stderr
    assert done.stdout.startswith("marks unshare"), done.stdout


def test_the_bundle_is_written_for_older_pythons() -> None:
    for name, source in bundle.sources().items():
        ast.parse(source, name, feature_version=(3, 8))


@pytest.mark.skipif(oldest() is None, reason="no Python 3.8, 3.9 or 3.10 here to try it with")
def test_all_that_an_agent_does_on_one_host_runs_on_an_older_python(tmp_path: Path) -> None:
    async def main(station: Station) -> None:
        node = place(station)
        assert isinstance(node, DataFolder)
        assert node.digest()
        if station.link.ask("can_shape") == "":
            await asyncio.wrap_future(station.link.tell("shape", links={}))
        async with Started(node, ["sleep", "1000"], tmp_path / "log") as it:
            while not node.processes():
                await node.look()
            await lied_to(node)
            node.stop("test")
            while not node.threads().stopped:
                await node.look()
            node.kill()
            assert await it.end() == "signal SIGKILL"

    old = Host(name="old", local=True, agent_python=oldest() or "")
    station = Station(old, f"test-{os.getpid()}-old")
    try:
        asyncio.run(main(station))
    finally:
        station.close()


async def lied_to(node: SshNode) -> None:
    """Lie to the one process of a node about the wall clock, look, and tell the truth again."""
    if (why := node.clocks.unavailable()) is not None:
        assert "no machine code" in why
        return
    await node.clocks.skew("test", Skew(wall=Lie(offset_s=1000.0)))
    ((_, read),) = (await node.clocks.read_clocks()).items()
    assert read.wall is not None
    assert read.wall.error_s == pytest.approx(1000.0, abs=0.01)
    assert len(node.clocks.applied("test")) == 1
    await node.clocks.true_clocks("test")
    assert next(iter((await node.clocks.read_clocks()).values())).original
    assert node.clocks.owners() == []


def test_heal_touches_no_process_for_a_run_on_hosts(tmp_path: Path) -> None:
    """A pid of a host may be that of another process here, started in the same tick."""
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(argv) as other:
        try:
            other.send_signal(signal.SIGSTOP)
            until(lambda: set(procfs.thread_states(other.pid).values()) == {"T"}, "a stop")
            ledger = Ledger(tmp_path / "ledgers" / "dead.jsonl", tmp_path, "ssh")
            named = [[other.pid, procfs.start_ticks(other.pid)]]
            ledger.add("pause", "w1", {"what": "resume", "processes": named})
            ledger.close()
            assert "nothing to do from here" in heal(tmp_path / "ledgers")[0]
            assert set(procfs.thread_states(other.pid).values()) == {"T"}
            assert not list((tmp_path / "ledgers").iterdir())
        finally:
            other.kill()


def test_an_agent_that_cannot_start_says_why() -> None:
    broken = Host(name="here", local=True, agent_python="false")
    with pytest.raises(HostLostError, match=r"host here: (no agent could|the connection)"):
        Station(broken, "test")
    absent = Host(name="here", local=True, agent_python="/nowhere/python3")
    with pytest.raises(Exception, match=r"host here: no agent: .*nowhere"):
        Station(absent, "test")
