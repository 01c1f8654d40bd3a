"""Histories of other tools as small texts, and `winkle check` on them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT.parent / "shared" / "histories"
_NIL = re.compile(r"(?<![\w:])-(?!\w)")


def check(
    path: Path, *flags: str, capsys: pytest.CaptureFixture[str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Run `winkle check --json`; return the exit code and the verdict."""
    assert capsys is not None
    capsys.readouterr()
    code = main(["check", str(path), "--json", *flags])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return code, json.loads(printed.out)["verdict"] if printed.out else {"error": printed.err}


def reasons(verdict: dict[str, Any]) -> list[str]:
    """The reasons for unknown."""
    return [item["reason"] for item in verdict.get("unknown", ())]


def as_jsonl(text: str) -> str:
    """Return `process type f value` lines as JSON lines; `-` is null."""
    made = []
    for line in text.strip().splitlines():
        process, kind, f, value = line.split(maxsplit=3)
        op = {"process": process, "type": kind, "f": f, "value": _json(value)}
        made.append(json.dumps(op))
    return "".join(line + "\n" for line in made)


def as_edn(text: str) -> str:
    """Return `process type f value` lines as one EDN map a line; `-` is nil."""
    made = []
    for line in text.strip().splitlines():
        process, kind, f, value = line.split(maxsplit=3)
        value = _NIL.sub("nil", value)
        who = process if process.isdecimal() else f":{process}"
        made.append(f"{{:process {who}, :type :{kind}, :f :{f}, :value {value}}}")
    return "".join(line + "\n" for line in made)


def as_log(text: str) -> str:
    """Return `process type f value` lines as lines of Jepsen's log."""
    made = []
    for line in text.strip().splitlines():
        process, kind, f, value = line.split(maxsplit=3)
        made.append(f"INFO  jepsen.util - {process}\t:{kind}\t:{f}\t{_NIL.sub('nil', value)}")
    return "".join(line + "\n" for line in made)


def _json(value: str) -> Any:
    return json.loads(",".join(_NIL.sub("null", value).split()))
