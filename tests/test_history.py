"""Histories: written before sent, paired by the rules, read up to the cut."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import MalformedHistoryError, RecordError
from harness.history import History, HistoryWriter, read_history
from harness.op import Op, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OPS = st.builds(
    Op,
    process=st.integers(0, 9) | st.text(min_size=1),
    type=st.sampled_from(["invoke", "ok", "fail", "info"]),
    f=st.sampled_from(["acquire", "write", "read"]),
    key=st.none() | st.text(),
    value=JSON,
    token=st.none() | st.integers(0, 2**62),
    time_ns=st.integers(0, 2**62),
    error=st.none() | st.text(),
    worker=st.none() | st.text(),
)


def op(process: int, kind: str, f: str, time_ns: int, **more: object) -> Op:
    fields = {"process": process, "type": kind, "f": f, "time_ns": time_ns, **more}
    return msgspec.convert(fields, Op)


@given(OPS)
def test_an_op_survives_its_line(event: Op) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode(line) == event


@pytest.mark.parametrize(
    "value", ["</script>", "quote ' \" `", "line\nbreak\r\u2028", "x" * 1_000_000, "\x00\x1b[31m"]
)
def test_hostile_values_survive_a_file(tmp_path: Path, value: str) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer:
        writer.append(op(0, "invoke", "write", 1, value=value))
        writer.append(op(0, "ok", "write", 2, error=value))
    history = read_history(path)
    assert history.ops[0].value == value
    assert history.calls[0].error == value
    assert not history.cut


def test_a_torn_tail_is_a_cut_and_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer:
        writer.append(op(0, "invoke", "write", 1))
        writer.append(op(0, "ok", "write", 2))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        history = read_history(path)
        assert len(history.ops) == whole[:length].count(b"\n")
        assert history.cut == (length > 0 and whole[length - 1 : length] != b"\n")


def test_unknown_outcomes_never_end() -> None:
    calls = History(
        [
            op(0, "invoke", "write", 1),
            op(1, "invoke", "write", 2),
            op(0, "info", "write", 3),
        ]
    ).calls
    assert [call.outcome for call in calls] == ["info", "open"]
    assert [call.ret_ns for call in calls] == [None, None]
    assert not calls[0].precedes(calls[1])


def test_equal_times_are_concurrent() -> None:
    calls = History(
        [
            op(0, "invoke", "read", 1),
            op(0, "ok", "read", 5),
            op(1, "invoke", "read", 5),
            op(1, "ok", "read", 6),
            op(0, "invoke", "read", 7),
        ]
    ).calls
    assert not calls[0].precedes(calls[1])
    assert calls[1].precedes(calls[2])


@pytest.mark.parametrize(
    ("ops", "line", "words"),
    [
        ([op(0, "ok", "read", 1)], 1, "without an invocation"),
        ([op(0, "invoke", "read", 1), op(0, "invoke", "read", 2)], 2, "is open"),
        (
            [op(0, "invoke", "w", 1), op(0, "info", "w", 2), op(0, "invoke", "w", 3)],
            3,
            "after an info",
        ),
        ([op(0, "invoke", "read", 5), op(0, "ok", "read", 4)], 2, "time goes back"),
        ([op(0, "invoke", "read", 1), op(0, "ok", "write", 2)], 2, "completes write"),
        (
            [op(0, "invoke", "read", 1, key="a"), op(0, "ok", "read", 2, key="b")],
            2,
            "completes read on b",
        ),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(ops: list[Op], line: int, words: str) -> None:
    with pytest.raises(MalformedHistoryError, match=words) as caught:
        _ = History(ops).calls
    assert caught.value.line == line


@pytest.mark.parametrize("line", [b"{}", b"rubbish", b"\xff\xfe", b'{"process":0,"type":"maybe"}'])
def test_a_line_that_is_no_op_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(encode(op(0, "invoke", "read", 1)) + line + b"\n")
    with pytest.raises(MalformedHistoryError) as caught:
        read_history(path)
    assert caught.value.line == 2


def test_a_full_disk_raises_and_keeps_what_was_written(tmp_path: Path) -> None:
    writer = HistoryWriter(Path("/dev/full"))
    with pytest.raises(RecordError, match="No space left"):
        writer.append(op(0, "invoke", "read", 1))
    assert writer.count == 0
    writer.close()
    writer.close()
