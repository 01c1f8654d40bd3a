"""JSON lines become the same columns on the quick road and on the slow one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.checking.columns import Columns, from_history
from harness.checking.lines import beside, columns_of_lines, read_recorded, write_beside
from harness.checking.values import NOT_TOLD
from harness.errors import MalformedHistoryError
from harness.history import History, HistoryWriter, read_history
from harness.offline import Asked, judge_file
from tests import checking_objects as objects
from tests.checking_histories import Act, Made, Shape, history_of, simulate

ACTS: dict[str, tuple[Any, Act]] = {
    "cas": (0, objects.register_act(distinct=False, cas=True)),
    "fenced": ((0, None), objects.fenced_act()),
    "lock": ((None, 0), objects.lock_act(expires=True)),
    "set": (frozenset(), objects.set_act(removes=True)),
    "mutex": ((None, 0), objects.mutex_act(owners=True, depth=1)),
}


def written(path: Path, history: History) -> Path:
    with HistoryWriter(path) as file:
        for op in history.ops:
            file.append(op)
    return path


def meaning(columns: Columns) -> list[tuple[Any, ...]]:
    """What the rows say, without the numbers that stand for names and values."""
    values = {i: columns.values[i] for i in range(len(columns.values))} | {NOT_TOLD: "not told"}
    rows = []
    for row in range(len(columns)):
        words = (
            columns.processes.names[columns.process[row]],
            columns.kinds.names[columns.kind[row]],
            columns.keys.names[columns.key[row]],
            columns.errors.names[columns.error[row]],
        )
        said = [
            values[int(each[row])] for each in (columns.value, columns.expected, columns.result)
        ]
        numbers = [
            int(getattr(columns, name)[row])
            for name in ("index", "ret_index", "call", "ret", "token", "result_token", "outcome")
        ]
        rows.append((*words, *said, *numbers))
    return rows


@pytest.mark.parametrize("name", ACTS)
def test_both_roads_lead_to_the_same_columns(tmp_path: Path, name: str) -> None:
    start, act = ACTS[name]
    for seed in range(20):
        calls = simulate(Shape(seed, 9, 3, 0.2, 0.2, keys=5), start, act)
        lines = written(tmp_path / f"{seed}.jsonl", history_of(calls))
        quick = columns_of_lines(lines)
        assert quick is not None
        slow = from_history(read_history(lines))
        assert meaning(quick) == meaning(slow)
        assert (quick.events, quick.end_ns) == (slow.events, slow.end_ns)
        write_beside(lines)
        again, remark = read_recorded(lines)
        assert remark is None
        assert again is not None
        assert meaning(again) == meaning(slow)


VALUES = [7, 7.0, -3, True, 1, False, 0, None, "7", 2.5, [1, 1.0], {"a": 1}, 10**15, 1e300]


@pytest.mark.parametrize("wide", [VALUES, [v for v in VALUES if v != 10**15]])
def test_values_are_the_same_where_json_says_so(tmp_path: Path, wide: list[Any]) -> None:
    calls = [Made(3 * i, 3 * i + 1, "write", value=v) for i, v in enumerate(wide * 2)]
    swaps = [Made(900 + i, 901 + i, "cas", value=[v, wide[i - 1]]) for i, v in enumerate(wide)]
    lines = written(tmp_path / "h.jsonl", history_of(calls + swaps))
    quick, slow = columns_of_lines(lines), from_history(read_history(lines))
    assert quick is not None
    assert meaning(quick) == meaning(slow)
    for name in ("value", "expected", "result"):  # equal ids, whatever the ids are
        pairs = set(zip(getattr(quick, name).tolist(), getattr(slow, name).tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    for value in (*wide, 99, "new", 7.0):
        assert quick.values[quick.values.id(value)] == value
    write_beside(lines)
    again, _ = read_recorded(lines)
    assert again is not None
    assert meaning(again) == meaning(slow)


@pytest.mark.parametrize("number", [1 << 60, 1 << 61, (1 << 61) + 1, -(1 << 61), -(1 << 60)])
def test_a_number_that_could_be_a_code_is_read_the_slow_way(tmp_path: Path, number: int) -> None:
    lines = written(tmp_path / "h.jsonl", history_of([Made(1, 2, "write", value=number)]))
    quick = columns_of_lines(lines)
    assert quick is None or meaning(quick) == meaning(from_history(read_history(lines)))
    assert judge_file(lines, Asked(model="register")).verdict.verdict == "pass"


def test_packed_lines_take_the_same_road(tmp_path: Path) -> None:
    lines = written(tmp_path / "h.jsonl", history_of([Made(1, 2, "write", value=5)]))
    packed = tmp_path / "h.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    quick = columns_of_lines(packed)
    assert quick is not None
    assert meaning(quick) == meaning(from_history(read_history(lines)))
    packed.write_bytes(packed.read_bytes()[:-9])
    assert columns_of_lines(packed) is None


OP = {"process": 1, "type": "invoke", "f": "write", "key": "k", "value": 1, "time_ns": 5}
DONE = {**OP, "type": "ok", "value": None, "time_ns": 6}


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [{**OP, "key": None}],
        [{k: v for k, v in OP.items() if k != "time_ns"}],
        [DONE],
        [OP, OP],
        [OP, {**DONE, "time_ns": 4}],
        [OP, {**DONE, "key": "other"}],
        [OP, {**DONE, "f": "read"}],
        [OP, {**DONE, "type": "info"}, {**OP, "time_ns": 7}],
        [{**OP, "token": 1 << 70}],
        [{**OP, "f": "cas"}],
        [{**OP, "time_ns": 1 << 61}],
    ],
)
def test_whatever_is_unusual_is_read_the_slow_way(tmp_path: Path, ops: list[Any]) -> None:
    lines = tmp_path / "history.jsonl"
    lines.write_text("".join(json.dumps(op) + "\n" for op in ops))
    assert columns_of_lines(lines) is None
    assert write_beside(lines) is None
    assert not beside(lines).exists()


@pytest.mark.parametrize("tail", ["{", "\n", " \n", '{"process": 1}\n', "nonsense\n"])
def test_a_damaged_file_is_read_the_slow_way(tmp_path: Path, tail: str) -> None:
    lines = tmp_path / "history.jsonl"
    lines.write_text("".join(json.dumps(op) + "\n" for op in (OP, DONE)) + tail)
    assert columns_of_lines(lines) is None


def test_blank_lines_are_no_history(tmp_path: Path) -> None:
    lines = tmp_path / "history.jsonl"
    lines.write_text(" \n\n")
    assert columns_of_lines(lines) is None


def test_columns_of_other_lines_are_not_used(tmp_path: Path) -> None:
    lines = tmp_path / "history.jsonl"
    legal = [Made(1, 2, "write", value=5), Made(3, 4, "read", result=5)]
    written(lines, history_of(legal))
    write_beside(lines)
    asked = Asked(model="register")
    before = judge_file(lines, asked).verdict
    assert before.verdict == "pass"
    columns_of_lines_only = judge_file(
        Path(written(tmp_path / "o.jsonl", history_of(legal))), asked
    )
    assert columns_of_lines_only.verdict == before
    lines.unlink()
    written(lines, history_of([*legal, Made(5, 6, "read", result=7)]))
    verdict = judge_file(lines, asked).verdict
    assert verdict.verdict == "fail"
    assert any("of no use" in note for note in verdict.notes)
    beside(lines).write_bytes(b"PK damaged")
    assert judge_file(lines, asked).verdict.verdict == "fail"


def test_the_slow_way_names_the_line(tmp_path: Path) -> None:
    lines = tmp_path / "history.jsonl"
    lines.write_text("".join(json.dumps(op) + "\n" for op in (OP, OP)))
    verdict = judge_file(lines, Asked(model="register")).verdict
    assert "line 2" in verdict.headline
    with pytest.raises(MalformedHistoryError):
        from_history(read_history(lines))
