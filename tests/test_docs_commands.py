"""Every command that the pages show is carried out, and prints what they show.

Each page is a session in a folder of its own: files that it shows are written, and its commands run
in their order.  Pages run side by side, since a run mostly waits; a `winkle run` that several pages
show is made once.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
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

LANES = 3
BOUND_S = 240
# Commands that take more than 30 s, and the test that runs them beside the pages.
ELSEWHERE = {"winkle suite quick -q": "test_the_quick_suite"}
# Lines of bash blocks: they change the machine or the checkout, so they are looked at only.
NOT_RUN = {
    "make run": "installs, then runs the suite quick",
    "make test": "runs this test",
    "make lint": "a part of make test",
    'make test-one ARGS="tests/test_history.py -q"': "a part of make test",
    "make format": "changes files",
    "make docs": "changes files; test_docs_reference compares what it writes",
    "python3 -m venv .venv": "what the Makefile does",
    ".venv/bin/pip install '.[all]'": "what the Makefile does",
    ".venv/bin/winkle doctor": "run by the pages as winkle doctor",
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
    """Plays pages side by side."""

    home: Path
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(LANES))
    playing: dict[object, "Future[list[Outcome]]"] = field(default_factory=dict)
    runs: dict[str, "Future[Outcome]"] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def outcomes(self, what: object) -> list[Outcome]:
        """Return what came of a page, or of a command of `ELSEWHERE`."""
        if what not in self.playing:
            self.begin(what)
        return self.playing[what].result(BOUND_S)

    def begin(self, what: object) -> None:
        """Start to play, when a lane is free."""
        folder = self.home / f"{len(self.playing)}"
        folder.mkdir()
        shutil.copy(ROOT / "docs" / "examples" / "mylock.py", folder)
        play = self._page if isinstance(what, Path) else self._lone
        self.playing[what] = self.pool.submit(play, what, folder)  # type: ignore[arg-type] # paired

    def _lone(self, command: Command, folder: Path) -> list[Outcome]:
        return [carry_out(command, folder)]

    def _page(self, page: Path, folder: Path) -> list[Outcome]:
        done: list[Outcome] = []
        for block in blocks(page):
            for found in (named_file(block), patch(block, folder)):
                if found is not None:
                    (folder / found[0]).write_text(found[1], "utf-8")
            mine = [command for command in console(block) if command.text not in ELSEWHERE]
            done.extend(self._once(command, folder) for command in mine)
        return done

    def _once(self, command: Command, folder: Path) -> Outcome:
        """Carry a command out; a run that another page has made is taken from there."""
        if not command.text.startswith("winkle run "):
            return carry_out(command, folder)
        with self.lock:
            known = self.runs.get(command.text)
            mine: Future[Outcome] = self.runs.setdefault(command.text, Future())
        if known is None:
            try:
                mine.set_result(carry_out(command, folder))
            except BaseException as error:
                mine.set_exception(error)
                raise
            return mine.result()
        made = known.result(BOUND_S)
        if made.folder is not None:
            copy = folder / "runs" / made.folder.name
            shutil.copytree(made.folder, copy)
            (folder / "runs" / "latest").unlink(missing_ok=True)
            (folder / "runs" / "latest").symlink_to(copy.name)
        return Outcome(command, made.code, made.printed, made.complained, made.folder)


def console(block: Block) -> Iterator[Command]:
    """The commands of a block, if it is a console."""
    return commands(block) if block.language == "console" else iter(())


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
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
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
    found = [text for text in texts(page) if text not in ELSEWHERE]
    marks = []
    if any(word in text for text in found for word in ("etcd", "valkey")):
        marks.append(pytest.mark.real)
    elif any(text.split()[1] in ("run", "replay", "suite", "doctor", "-q") for text in found):
        marks.append(pytest.mark.sandbox)
    if "client.pl" in page.read_text("utf-8"):
        marks.append(pytest.mark.skipif(shutil.which("perl") is None, reason="perl is missing"))
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


def lone() -> dict[str, Command]:
    """The commands of `ELSEWHERE` as the pages show them."""
    found = (c for page in pages() for block in blocks(page) for c in console(block))
    return {command.text: command for command in found if command.text in ELSEWHERE}


@pytest.fixture(scope="module")
def theatre(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Theatre]:
    """Begin all pages of the tests that were selected, the longest first."""
    made = Theatre(tmp_path_factory.mktemp("docs"))
    names = {item.name for item in request.session.items}
    if "test_the_quick_suite" in names:
        made.begin(lone()["winkle suite quick -q"])
    for page in sorted(pages(), key=lambda page: -len(texts(page))):
        if any(str(page.relative_to(ROOT)) in name for name in names):
            made.begin(page)
    yield made
    made.pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("page", [parameter(page) for page in pages() if texts(page)])
def test_commands_print_what_the_page_shows(theatre: Theatre, page: Path) -> None:
    done = theatre.outcomes(page)
    assert done
    for outcome in done:
        outcome.check()


@pytest.mark.real
def test_the_quick_suite(theatre: Theatre) -> None:
    (outcome,) = theatre.outcomes(lone()["winkle suite quick -q"])
    outcome.check()


def test_long_commands_are_run_by_the_tests_that_are_named() -> None:
    assert set(lone()) == set(ELSEWHERE), "the table names a command that no page shows"
    for name in ELSEWHERE.values():
        assert callable(globals()[name])


def test_each_line_of_a_bash_block_is_in_the_table_of_what_is_not_run() -> None:
    lines = {
        line.split("  #")[0].strip()
        for page in pages()
        for block in blocks(page)
        if block.language in ("bash", "sh")
        for line in block.text.splitlines()
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
