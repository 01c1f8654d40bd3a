"""`winkle` as a process: exit codes, one clear line for a mistake, nothing on the wrong stream."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import __version__

_STUBS = Path(__file__).parent / "support_plugins.py"


def winkle(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `winkle` as a user does."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("winkle")), *arguments],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command"),
        (["--bogus"], "No such option"),
        (["rnu"], "No such command"),
        (["run", "--bogus"], "--bogus"),
        (["run", "--repeat", "0"], "--repeat"),
        (["run", "--repeat", "x"], "--repeat"),
        (["check"], "PATH"),
        (["check", "no/such/folder"], "no/such/folder: no such run folder or history file"),
        (["report", "no/such/folder"], "no/such/folder: no such run folder"),
        (["explain", "stale-owner-writ"], "did you mean stale-owner-write?"),
        (["list", "target"], "did you mean targets?"),
        (["suite", "quik"], "did you mean quick?"),
        (["suite", "none.yaml"], "none.yaml: cannot be read"),
        (["run", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_wrong_usage_is_one_line_and_254(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = winkle(*arguments, cwd=tmp_path)
    assert done.returncode == 254, done.stderr
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.startswith("winkle: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_three_mistakes_in_one_run_file_are_three_lines(tmp_path: Path) -> None:
    stub = f"{_STUBS}:"
    (tmp_path / "run.yaml").write_text(
        f'lock: "{stub}Etcd[nodes=99]"\n'
        f"store: {stub}Valkey\n"
        f"workload: {stub}Fencing\n"
        "workers: 0\n"
        "  \n"
        "ttl: 2 seconds\n"
    )
    done = winkle("run", "run.yaml", cwd=tmp_path)
    assert done.returncode == 254
    assert done.stderr.split("\n") == [
        "winkle: run.yaml:1:7: lock.options.nodes: found 99; allowed: at most 9",
        "winkle: run.yaml:4:10: workers: found 0; allowed: at least 1",
        (
            "winkle: run.yaml:6:6: ttl: '2 seconds' is no duration: write a number and a unit, like"
            " 500ms, 2s, 1.5m or 2.5leases"
        ),
        "",
    ]


def test_an_unknown_target_gets_the_nearest_name() -> None:
    done = winkle("run", "--lock", "etcdd", "--store", "valkey")
    assert done.returncode == 254
    assert 'winkle: --lock: unknown target "etcdd"; did you mean etcd? allowed:' in done.stderr


def test_help_and_version() -> None:
    for arguments in (["--help"], ["run", "--help"], ["-h"]):
        done = winkle(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: winkle" in done.stdout
    assert winkle("--version").stdout == f"vanwinkle {__version__}\n"


def test_help_loads_none_of_the_heavy_packages() -> None:
    heavy = {"rich", "pydantic", "yaml", "msgspec", "grpc", "redis", "jinja2", "hypothesis"}
    program = (
        "import sys, harness.cli\n"
        "assert harness.cli.main(['--help']) == 0\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = done.stderr.split()
    assert "typer" in loaded
    assert heavy.isdisjoint(loaded)


def test_lists_are_results_on_standard_output() -> None:
    for kind in ("targets", "faults", "workloads", "suites", "anomalies"):
        done = winkle("list", kind)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
        found = json.loads(winkle("list", kind, "--json").stdout)
        assert found
        assert all(entry["name"] for entry in found)
        assert found[0]["name"] in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = Path(sys.executable).with_name("winkle")
    with subprocess.Popen(
        [str(program), "list", "anomalies"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        code = process.wait(timeout=60)
    assert (code, said) == (0, b"")


def test_explain_prints_the_page() -> None:
    done = winkle("explain", "stale-owner-write")
    assert done.returncode == 0
    assert done.stdout.startswith("stale-owner-write\n\nThe resource accepted a write")
    assert "How to fix it" in done.stdout


def test_a_package_that_hides_ours_is_said_and_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "reports"
    theirs.mkdir()
    (theirs / "__init__.py").touch()
    done = winkle("list", "targets", PYTHONPATH=str(tmp_path))
    assert done.returncode == 254
    assert f"the package `reports` is at {theirs}" in done.stderr


def test_a_terminal_of_another_encoding_gets_escapes_and_no_traceback(tmp_path: Path) -> None:
    of_terminal = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
    done = winkle("run", "größe.yaml", cwd=tmp_path, **of_terminal)
    assert done.returncode == 254
    assert "gr\\xf6\\xdfe.yaml: cannot be read" in done.stderr
