"""Released versions: built whole or not at all, once, and only if they say what they are."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import building, released
from harness.cli import main
from harness.errors import HarnessError, UsageError
from harness.released import Releases
from targets._etcd_releases import RELEASES
from targets.etcd import Etcd

GO = f"""#!{sys.executable}
import os, pathlib, sys, time
words, log = sys.argv[1:], pathlib.Path(os.environ["FAKE_GO"])
with (log / "asked").open("a") as file:
    file.write(" ".join([os.environ.get("CGO_ENABLED", "?"), *words]) + "\\n")
said = log / f"says-{{words[0]}}"
if said.exists():
    sys.exit(said.read_text())
if words[0] == "version":
    print("go version go1.26.8 linux/amd64")
if words[0] == "build":
    while (log / "hold").exists():
        time.sleep(0.01)
    program = pathlib.Path(words[words.index("-o") + 1])
    version = (log / "version").read_text()
    program.write_text(f"#!/bin/sh\\necho 'etcd Version: {{version}}'\\necho more\\n")
    program.chmod(0o700)
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool chain that builds etcd 3.7.1 at once; returns the folder that steers it."""
    folder = tmp_path / "go"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "go").write_text(GO)
    (folder / "bin" / "go").chmod(0o755)
    (folder / "version").write_text("3.7.1")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GO", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def get(version: str = "3.7.1", releases: Releases = RELEASES) -> tuple[Path, list[str]]:
    said: list[str] = []
    return building.get(releases, version, said.append), said


def asked(go: Path) -> list[str]:
    path = go / "asked"
    return [line for line in path.read_text().splitlines() if " version" not in line]


def kept() -> list[str]:
    """What lies in the cache of etcd, locks apart."""
    folder = released.released_folder() / "etcd"
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def eventually(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_release_is_built_without_cgo_and_kept(go: Path) -> None:
    assert released.binary("etcd", "3.7.1") is None
    path, said = get()
    assert released.binary("etcd", "3.7.1") == path
    assert path == released.released_folder() / "etcd" / "3.7.1" / "etcd"
    assert asked(go)[0] == "0 get go.etcd.io/etcd/server/v3@v3.7.1"
    assert asked(go)[1].startswith("0 build -trimpath -ldflags=-s -w -o ")
    assert asked(go)[1].endswith(" go.etcd.io/etcd/server/v3")
    assert "fetching" in said[0]
    ((record, whole),) = released.listed()
    assert whole
    assert (record.version, record.says) == ("3.7.1", "etcd Version: 3.7.1")
    assert record.go == "go version go1.26.8 linux/amd64"
    again, said = get()
    assert (again, said) == (path, ["etcd 3.7.1: already there"])
    assert len(asked(go)) == 2
    assert kept() == ["3.7.1"]


def test_a_damaged_program_counts_as_absent_and_is_built_again(go: Path) -> None:
    path, _ = get()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"#")
    assert released.binary("etcd", "3.7.1") is None
    assert [whole for _, whole in released.listed()] == [False]
    again, said = get()
    assert "damaged" in said[0]
    assert again.read_bytes() == data
    assert kept() == ["3.7.1"]
    path.with_name(released.RECORD).write_text("{")
    assert released.binary("etcd", "3.7.1") is None


def test_a_program_that_is_another_release_is_not_kept(go: Path) -> None:
    (go / "version").write_text("3.7.0")
    with pytest.raises(HarnessError, match=r"says 'etcd Version: 3\.7\.0' and not"):
        get()
    assert released.listed() == []
    assert kept() == []


@pytest.mark.parametrize(
    ("word", "said", "kind", "match"),
    [
        ("get", "go: x: dial tcp: lookup proxy: no such host", HarnessError, "cannot be reached"),
        ("get", "go: x@v9: invalid version: unknown revision v9", UsageError, "no such release"),
        (
            "get",
            "go: 403 Forbidden\n\tserver response: This module version is not available.",
            UsageError,
            "no such release, or the proxy lacks it:\n  go: 403 Forbidden\n    server",
        ),
        ("get", "go: go.mod requires go >= 1.99", HarnessError, r"`go get` failed with 1"),
        ("build", "\n".join(f"line {n}" for n in range(20)), HarnessError, "  line 19$"),
    ],
)
def test_what_the_tool_chain_says_is_told(
    word: str, said: str, kind: type[Exception], match: str, go: Path
) -> None:
    (go / f"says-{word}").write_text(said)
    with pytest.raises(kind, match=match) as caught:
        get()
    assert said.splitlines()[-1].strip() in str(caught.value)
    assert "line 11" not in str(caught.value)
    assert kept() == []


def test_without_a_tool_chain_the_other_ways_are_named(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(go))
    monkeypatch.setattr(building, "_USUAL_GO", str(go / "nowhere"))
    with pytest.raises(UsageError, match=r"no Go tool chain .*etcd\[binary=.*--backend docker"):
        get()


def test_versions_that_are_none_or_cannot_be_built_are_refused() -> None:
    for strange in ("", "3", "3.7", "../3.7.1", "3.7.1/..", "3.7.1\n", "latest"):
        with pytest.raises(UsageError, match="is no version of etcd"):
            released.binary("etcd", strange)
    assert RELEASES.module("3.4.3").endswith("20191023171146-3cf2f69b5738")
    assert RELEASES.module("3.6.0-rc.1") == "go.etcd.io/etcd/server/v3@v3.6.0-rc.1"
    for unbuildable in ("3.4.99", "3.3.1", "2.3.8", "4.0.0"):
        with pytest.raises(UsageError, match=r"etcd \d.* (no known release|cannot be built)"):
            RELEASES.module(unbuildable)


def start(go: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-P", "-m", "harness.cli", "get", "etcd@3.7.1"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_at_once_build_once(go: Path) -> None:
    (go / "hold").touch()
    first = start(go)
    eventually(lambda: (go / "asked").exists() and len(asked(go)) == 2)
    second = start(go)
    assert second.stderr is not None
    assert "another winkle builds it" in second.stderr.readline()
    (go / "hold").unlink()
    for one in (first, second):
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
        assert out.strip() == str(released.binary("etcd", "3.7.1"))
    assert len(asked(go)) == 2
    assert kept() == ["3.7.1"]


def test_a_kill_in_the_middle_leaves_nothing_half_made(go: Path) -> None:
    (go / "hold").touch()
    killed = start(go)
    eventually(lambda: (go / "asked").exists() and len(asked(go)) == 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert released.listed() == []
    assert released.binary("etcd", "3.7.1") is None
    (go / "hold").unlink()  # the build that lost its master ends as well
    path, _ = get()
    assert path.is_file()
    assert kept() == ["3.7.1"]


def test_a_target_takes_the_version_from_the_cache_or_names_the_command(go: Path) -> None:
    with pytest.raises(UsageError, match=r"winkle get etcd@3\.7\.1$"):
        Etcd(version="3.7.1").servers()
    path, _ = get()
    target = Etcd(version="3.7.1")
    assert {server.argv[0] for server in target.servers()} == {str(path)}
    assert target.version() == "etcd Version: 3.7.1"
    with pytest.raises(ValueError, match="binary and version both"):
        Etcd(version="3.7.1", binary="/bin/true")


def test_the_command_gets_lists_and_refuses(go: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get"]) == 0
    assert "winkle get etcd@3.7.1" in capsys.readouterr().out
    assert main(["get", "etcd@v3.7.1"]) == 0
    assert capsys.readouterr().out.strip() == str(released.binary("etcd", "3.7.1"))
    assert main(["get"]) == 0
    assert "etcd@3.7.1" in capsys.readouterr().out
    assert main(["get", "--json"]) == 0
    assert '"whole": true' in capsys.readouterr().out
    built = len(asked(go))
    for wrong, said in {
        "ectd@3.7.1": 'unknown product "ectd"',
        "etcd": "which version",
        "etcd@3.7.x": "is no version of etcd",
        "etcd@3.4.99": "no known release",
        "valkey@9.0.0": "unknown product",
    }.items():
        assert main(["get", "etcd@3.7.1", wrong]) == 254
        assert said in capsys.readouterr().err
    assert len(asked(go)) == built
    (go / "says-get").write_text("dial tcp: i/o timeout")
    assert main(["get", "etcd@3.6.8"]) == 255
    assert "cannot be reached" in capsys.readouterr().err
