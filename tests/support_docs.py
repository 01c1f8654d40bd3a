"""Reading the documentation as a program: its pages, their blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"[#;] (\S+\.(?:py|yaml|pl|edn))\n")
_DIFF = re.compile(r"--- (\S+)\n\+\+\+ (\S+)\n(.*)", re.DOTALL)
_MISSING = object()


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is where its text begins."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a console block with the output that the page shows."""

    where: str
    text: str
    shown: tuple[str, ...] = field(default=())

    @property
    def words(self) -> list[str]:
        """The command as a shell would split it; there is no shell."""
        return shlex.split(self.text)

    @property
    def exit_code(self) -> int:
        """What the shown output says about the exit code."""
        head = self.shown[0] if self.shown else ""
        if head.startswith("winkle:"):
            return 254
        if any('"verdict": "fail"' in line for line in self.shown):
            return 1
        return {"FAIL": 1, "UNKNOWN": 2}.get(head.split(":")[0], 0)


def pages() -> list[Path]:
    """Every page."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*found, *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page in their order."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield Block(page, line, match[1], match[2])


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, each with its output."""
    lines = block.text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        where = f"{block.page.relative_to(ROOT)}:{block.line + start}"
        yield Command(where, lines[start][2:], tuple(lines[start + 1 : stop]))


def named_file(block: Block) -> tuple[str, str] | None:
    """The file that a block shows, by a comment with its name in the first line."""
    match = _NAMED.match(block.text)
    return (match[1], block.text[match.end() :]) if match else None


def patch(block: Block, folder: Path) -> tuple[str, str] | None:
    """The file that a diff block makes of another one in `folder`; its lines must fit."""
    match = _DIFF.match(block.text)
    if block.language != "diff" or match is None:
        return None
    body = match[3].splitlines()
    old = "\n".join(line[1:] for line in body if line[:1] in "- ")
    new = "\n".join(line[1:] for line in body if line[:1] in "+ ")
    text = (folder / match[1]).read_text("utf-8")
    assert text.count(old) == 1, f"{block.where}: fits {text.count(old)} places of {match[1]}"
    return match[2], text.replace(old, new)


def differs(shown: tuple[str, ...], printed: list[str]) -> str | None:
    """Return the first shown line that the output does not have; `…` stands for anything.

    Numbers and the names of workers differ from run to run, and a sentence about a finding is told
    by what it begins with.
    """
    rest = iter(printed)
    gap = False
    for line in shown:
        if line == "…":
            gap = True
            continue
        pattern = _pattern(line)
        while (got := next(rest, _MISSING)) is not _MISSING:
            if pattern.fullmatch(str(got)):
                break
            if not gap:
                return f"shown {line!r}, printed {got!r}"
        else:
            return f"shown {line!r}, and not printed"
        gap = False
    left = [] if gap else list(rest)
    return f"not shown: {left[0]!r}" if left else None


def _pattern(line: str) -> re.Pattern[str]:
    verdict = re.match(r"(FAIL|UNKNOWN): ", line)
    if verdict:
        return re.compile(re.escape(verdict[0]) + r".+")
    text = "".join(r".*" if part == "…" else re.escape(part) for part in re.split("(…)", line))
    text = re.sub(r"(\\ )+", r"\\ +", text)
    text = re.sub(r"\d+", r"\\d+", text)
    text = re.sub(r"(once|\\d\+\\ \+times,\\ \+first)", r"(once|\\d+ times, first)", text)
    return re.compile(re.sub(r"(takeovers?|writes?)\b", r"\1?", text))
