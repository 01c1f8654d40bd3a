"""Every command that the pages show is carried out, and prints what they show.

Each page is a session in a folder of its own: files that it shows are written, and its commands run
in their order.  Sessions go on side by side, since a run mostly waits.  A `winkle run` does not
wait for its turn, and one that several pages show is made once.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support_docs import (
    ROOT,
    Block,
    Command,
    blocks,
    commands,
    differs,
    named_file,
    pages,
    patch,
)

pytestmark = pytest.mark.once
LANES = 3
BOUND_S = 240
RUN = "winkle run "
# Commands that take more than 30 s, and the test that runs them.
ELSEWHERE = {
    "winkle suite quick -q": "test_quick_suite.py::test_the_quick_suite_comes_out_as_expected",
    "winkle suite etcd -q": "test_suites_etcd.py::test_a_suite_comes_out_as_expected",
    "winkle suite etcd-11456 -q": "test_suites_etcd.py::test_a_suite_comes_out_as_expected",
    "winkle suite etcd-access -q": "test_suites_etcd.py::test_a_suite_comes_out_as_expected",
}
# Lines of bash blocks: they change the machine or the checkout, so they are looked at only.
NOT_RUN = {
    "winkle get etcd@3.4.3 etcd@3.7.1": "takes minutes and the network",
    "winkle run --lock 'etcd[version=3.7.1]' --store 'etcd[guarded=true]' --fault pause": (
        "needs what the line before it gets; test_suites_etcd runs the like"
    ),
    "winkle run --backend docker --lock etcd --store valkey"
    " --fault pause:who=holder,at=before-write,for=2.5leases": (
        "needs an engine; test_docker_run runs the like"
    ),
    "winkle run --backend docker --lock 'etcd[image=vanwinkle/etcd:3.7.1]'"
    " --store 'valkey[image=valkey/valkey:8.1.1,fenced=true]'"
    " --fault pause:who=holder,at=before-write,for=2.5leases": (
        "needs an engine with these images; test_docker_products runs the like"
    ),
    "winkle run --compose my/docker-compose.yml --servers 'etcd*'"
    " --lock ./etcd_over_http.py:Etcd --store ./etcd_over_http.py:Etcd"
    " --fault pause:who=holder,at=before-write,for=2.5leases"
    " --fault pause:who=leader,at=6s,for=1s --fault partition:who=leader,at=8s,for=1s": (
        "needs an engine; test_docker_compose runs it"
    ),
    "winkle run --backend ssh --inventory hosts.yaml"
    " --lock 'etcd[nodes=1,binary=/opt/etcd/bin/etcd]'"
    " --store 'valkey[binary=/opt/valkey/bin/valkey-server]'"
    " --fault pause:who=holder,at=before-write,for=2.5leases": (
        "needs hosts; test_ssh_run runs the like"
    ),
    "make run": "installs, then runs the suite quick",
    "make test": "runs this test",
    "make lint": "a part of make test",
    'make test-one ARGS="tests/test_history.py -q"': "a part of make test",
    "make format": "changes files",
    "make docs": "changes files; test_docs_reference compares what it writes",
    "python3 -m venv .venv": "what the Makefile does",
    ". .venv/bin/activate": "a shell's own",
    "pip install '.[all]'": "what the Makefile does",
    "winkle doctor": "run by the pages' consoles",
    "sudo .venv/bin/winkle suite quick": "needs sudo",
    "sudo apparmor_parser -r /etc/apparmor.d/winkle": "changes the machine",
}


@dataclass(frozen=True)
class Outcome:
    """What a command did; `folder` is the run that it left."""

    command: Command
    code: int
    printed: list[str]
    complained: str
    folder: Path | None

    def check(self) -> None:
        """Compare with what the page shows."""
        where = f"{self.command.where}: {self.command.text}"
        assert self.code == self.command.exit_code, f"{where}\n{self.printed}\n{self.complained}"
        wrong = differs(self.command.shown, self.printed)
        assert wrong is None, f"{where}\n{wrong}"


@dataclass
class Theatre:
    """Plays pages: `LANES` runs at a time, each in a folder of its own, and two sessions."""

    home: Path
    stages: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(LANES))
    sessions: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    runs: dict[str, "Future[Outcome]"] = field(default_factory=dict)
    outcomes: dict[Path, "Future[list[Outcome]]"] = field(default_factory=dict)

    def begin(self, page: Path) -> None:
        """Begin a page, with those of its runs that no other page has begun."""
        for command in played(page):
            if command.text.startswith(RUN) and command.text not in self.runs:
                folder = self._stage(page, f"run{len(self.runs)}")
                self.runs[command.text] = self.stages.submit(carry_out, command, folder)
        self.outcomes[page] = self.sessions.submit(lambda: list(self._play(page)))

    def _play(self, page: Path) -> Iterator[Outcome]:
        """Carry out the commands of a page in their order."""
        folder = self._stage(page, page.relative_to(ROOT).as_posix().replace("/", "-"))
        for command in played(page):
            if command.text.startswith(RUN):
                made = self.runs[command.text].result(BOUND_S)
                yield replace(made, command=command)
                adopt(made.folder, folder / "runs")
            else:
                yield carry_out(command, folder)

    def _stage(self, page: Path, name: str) -> Path:
        """Make a folder with the files that a page shows."""
        folder = self.home / name
        folder.mkdir()
        shutil.copy(ROOT / "docs" / "examples" / "mylock.py", folder)
        for block in blocks(page):
            for found in (named_file(block), patch(block, folder)):
                if found is not None:
                    (folder / found[0]).write_text(found[1], "utf-8")
        return folder


def adopt(run: Path | None, runs: Path) -> None:
    """Copy a run folder to where its page expects it, as the latest one."""
    assert run is not None
    shutil.copytree(run, runs / run.name)
    (runs / "latest").unlink(missing_ok=True)
    (runs / "latest").symlink_to(run.name)


def played(page: Path) -> list[Command]:
    """The commands of a page that are carried out here."""
    found = [command for block in blocks(page) for command in console(block)]
    return [command for command in found if command.text not in ELSEWHERE]


def console(block: Block) -> Iterator[Command]:
    """The commands of a block, if it is a console."""
    return commands(block) if block.language == "console" else iter(())


# Dead runs of other tests are on the engine of this machine, and `winkle heal` would find them.
NO_ENGINE = "unix:///nonexistent/docker.sock"


def carry_out(command: Command, folder: Path) -> Outcome:
    """Run a command in a folder, without a shell."""
    program, *arguments = command.words
    start = {
        "winkle": ["-P", "-m", "harness.cli"],
        "pytest": ["-m", "pytest", "-p", "no:cacheprovider"],
    }
    done = subprocess.run(
        [sys.executable, *start[program], *arguments],
        cwd=folder,
        env={
            **{name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"},
            "XDG_STATE_HOME": str(folder / "state"),
            "DOCKER_HOST": NO_ENGINE,
        },
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    latest = folder / "runs" / "latest"
    run = latest.resolve() if latest.exists() else None
    return Outcome(command, done.returncode, done.stdout.splitlines(), done.stderr, run)


def texts(page: Path) -> list[str]:
    """The commands of a page's consoles."""
    return [command.text for block in blocks(page) for command in console(block)]


def parameter(page: Path) -> object:
    """A page as a test parameter, marked with what its commands need."""
    found = [command.text for command in played(page)]
    marks = []
    if any(word in text for text in found for word in ("etcd", "valkey")):
        marks.append(pytest.mark.real)
        missing = [name for name in ("grpc", "redis") if importlib.util.find_spec(name) is None]
        marks.append(pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}"))
    elif any(text.split()[1] in ("run", "replay", "suite", "doctor", "-q") for text in found):
        marks.append(pytest.mark.sandbox)
    if "client.pl" in page.read_text("utf-8"):
        marks.append(pytest.mark.skipif(shutil.which("perl") is None, reason="perl is missing"))
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.fixture(scope="module")
def theatre(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Theatre]:
    """Begin the runs of all pages whose tests were selected."""
    made = Theatre(tmp_path_factory.mktemp("docs"))
    names = {item.name for item in request.session.items}
    for page in pages():
        if f"{test_commands_print_what_the_page_shows.__name__}[{page.relative_to(ROOT)}]" in names:
            made.begin(page)
    yield made
    made.sessions.shutdown(cancel_futures=True)
    made.stages.shutdown(cancel_futures=True)


@pytest.mark.parametrize("page", [parameter(page) for page in pages() if played(page)])
def test_commands_print_what_the_page_shows(theatre: Theatre, page: Path) -> None:
    for outcome in theatre.outcomes[page].result(BOUND_S):
        outcome.check()


def test_long_commands_are_run_by_the_tests_that_are_named() -> None:
    every = {text for page in pages() for text in texts(page)}
    assert set(ELSEWHERE) <= every, "the table names a command that no page shows"
    for name in ELSEWHERE.values():
        file, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / "tests" / file).read_text("utf-8")


def test_each_line_of_a_bash_block_is_in_the_table_of_what_is_not_run() -> None:
    lines = {
        line.split("  #")[0].strip()
        for page in pages()
        for block in blocks(page)
        if block.language in ("bash", "sh")
        for line in re.sub(r"\\\n\s*", "", block.text).splitlines()
    }
    assert lines == set(NOT_RUN)


def test_consoles_hold_commands_only_of_programs_that_are_run() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "console":
                found = list(commands(block))
                assert found, f"{block.where}: no command"
                assert {command.words[0] for command in found} <= {"winkle", "pytest"}, block.where


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        (("PASS: 2 writes",), ["PASS: 1 write"], True),
        (("PASS: 2 writes",), ["FAIL: 2 writes"], False),
        (("FAIL: w1 did it",), ["FAIL: w3, whose lease"], True),
        (("a", "…"), ["a", "b", "c"], True),
        (("a",), ["a", "b"], False),
        (("…", "c"), ["a", "c"], True),
        (("a", "b"), ["a"], False),
        (("run  …/x",), ["run      /tmp/x"], True),
        (("  n: 2 times, first at 3.2 s",), ["  n: once at 13.250 s"], True),
    ],
)
def test_the_comparison_itself(shown: tuple[str, ...], printed: list[str], fits: bool) -> None:
    assert (differs(shown, printed) is None) == fits
