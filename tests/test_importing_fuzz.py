"""Whatever the bytes: a verdict or a refusal with a line, and never anything else."""

import gzip
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.importing import FORMATS
from harness.offline import Asked, judge_file
from harness.verdict import Outcome
from tests.support_importing import as_edn, as_jsonl, as_log

GOOD = """
0 invoke write 1
1 invoke read -
0 ok write 1
1 ok read 1
2 invoke cas [9,2]
2 fail cas [9,2]
3 invoke write 3
3 info write 3
4 invoke read -
4 ok read 3
"""
KV = "0 invoke read [7,-]\n1 invoke write [8,1]\n0 ok read [7,-]\n1 ok write [8,1]"
FILES = [write(text).encode() for write in (as_edn, as_jsonl, as_log) for text in (GOOD, KV)]
FILES += [b"[" + FILES[0] + b"]", gzip.compress(FILES[0])]
SNIPPETS = [
    *(b"{", b"}", b"[", b"]", b"(", b'"', b"\n", b"#_", b"#{", b"^", b"nil", b":nemesis", b"\x00"),
    *(b"\xff\xfe", b"-", b"9" * 40, b"1e400", b"true", b":info", b":invoke", b";", b"#x ", b"\\"),
    *(b'"time_ns":1,', b'"token":99999999999999999999,', b'"key":"k",', b":token 9", b"\\ud800"),
]
CONFIG = settings(max_examples=300)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good file with a few bytes cut out, doubled, or put in."""
    data = draw(st.sampled_from(FILES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 60)))
        middle = draw(st.sampled_from([b"", data[start:end] * 2, *SNIPPETS]))
        data = data[:start] + middle + data[end:]
    return data


def judged(data: bytes, asked: Asked) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history"
        path.write_bytes(data)
        try:
            verdict = judge_file(path, asked).verdict
        except UsageError:  # no model fits
            return
    assert verdict.verdict in get_args(Outcome)
    assert (verdict.verdict == "unknown") == bool(verdict.unknown)
    for item in verdict.unknown:
        assert item.reason in ("malformed", "vacuous"), item.text


@CONFIG
@given(data=st.binary(max_size=300), wanted=st.sampled_from([None, *FORMATS]))
def test_random_bytes(data: bytes, wanted: object) -> None:
    judged(data, Asked(format=wanted, model="register"))  # type: ignore[arg-type] # any of them


@CONFIG
@given(
    data=mutated(), wanted=st.sampled_from([None, *FORMATS]), model=st.sampled_from(["cas", None])
)
def test_mutated_files(data: bytes, wanted: object, model: str | None) -> None:
    judged(data, Asked(format=wanted, model=model))  # type: ignore[arg-type] # any of them


@pytest.mark.parametrize("data", FILES)
def test_the_files_that_are_mutated_are_good(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(data)
    assert judge_file(path, Asked(model="cas")).verdict.verdict == "pass"
