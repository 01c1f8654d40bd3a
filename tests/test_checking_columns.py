"""Columns say what the history says, on disk, too, and notice a history that is not theirs."""

from pathlib import Path

import numpy as np
import pytest

from harness.checking import check_columns
from harness.checking.columns import (
    ARRAYS,
    NEVER,
    NO_TOKEN,
    ColumnsDisagreeError,
    from_history,
    load,
    save,
)
from harness.checking.values import Values, frozen
from harness.errors import MalformedHistoryError
from harness.history import History, HistoryWriter, read_history
from harness.op import Op
from tests.checking_histories import Made, history_of

CALLS = [
    Made(1, 5, "write", key="a", value="x", token=3),
    Made(2, 0, "write", key="b", value=[1, {"k": None}], type="info"),
    Made(3, 9, "read", key="a", result="x", told=3),
    Made(6, 8, "cas", key="b", value=[None, 7], type="fail", result={"saw": "x"}, error="no: x"),
    Made(7, 7, "write", key="b", value=True, type="fail", error="fenced: 3 < 4"),
]


def write(history: History, path: Path) -> Path:
    with HistoryWriter(path) as file:
        for op in history.ops:
            file.append(op)
    return path


def test_each_row_is_a_call() -> None:
    history = history_of(CALLS)
    columns = from_history(history)
    assert len(columns) == 5
    for row, call in enumerate(history.calls):
        assert columns.index[row] == call.index
        assert columns.ret_index[row] == (-1 if call.ret_index is None else call.ret_index)
        assert columns.ret[row] == (NEVER if call.ret_ns is None else call.ret_ns)
        assert columns.keys.names[columns.key[row]] == call.key
        assert columns.processes.names[columns.process[row]] == call.process
        assert columns.token[row] == (NO_TOKEN if call.token is None else call.token)
    assert columns.values[int(columns.value[1])] == [1, {"k": None}]
    assert columns.values[int(columns.expected[3])] is None
    assert columns.values[int(columns.result[3])] == "x"
    assert columns.errors.names[columns.error[4]] == "fenced"


def test_a_file_gives_back_the_same_columns(tmp_path: Path) -> None:
    lines = write(history_of(CALLS), tmp_path / "history.jsonl")
    columns = from_history(read_history(lines))
    save(columns, tmp_path / "history.npz", lines)
    again = load(tmp_path / "history.npz", lines)
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(columns, name)), name
    assert [again.values[i] for i in range(len(again.values))] == [
        columns.values[i] for i in range(len(columns.values))
    ]
    assert again.values.id("x") == columns.values.id("x")
    assert again.events == len(read_history(lines).ops)
    assert check_columns(again, "register") == check_columns(columns, "register")


def test_columns_of_another_history_are_noticed(tmp_path: Path) -> None:
    lines = write(history_of(CALLS), tmp_path / "history.jsonl")
    save(from_history(read_history(lines)), tmp_path / "history.npz", lines)
    write(history_of([Made(50, 51, "read")]), lines)
    with pytest.raises(ColumnsDisagreeError, match="not made of"):
        load(tmp_path / "history.npz", lines)
    (tmp_path / "broken.npz").write_bytes(b"PK no")
    with pytest.raises(ColumnsDisagreeError, match="no columns"):
        load(tmp_path / "broken.npz")


def test_a_value_that_is_not_in_the_file_gets_an_id_of_its_own(tmp_path: Path) -> None:
    save(from_history(history_of(CALLS)), tmp_path / "history.npz")
    values = load(tmp_path / "history.npz").values
    count = len(values)
    assert values.id("never seen") == count
    assert values[count] == "never seen"
    assert values.id(True) != values.id(1)


def test_values_are_equal_as_json() -> None:
    values = Values()
    assert values.id(1) == values.id(1.0)
    assert values.id(True) != values.id(1)
    assert values.id([1, {"a": 2, "b": 3}]) == values.id([1.0, {"b": 3, "a": 2}])
    assert frozen(["a"]) != frozen("a")


def test_a_token_beyond_all_bounds_is_refused() -> None:
    ops = [Op(process=1, type="invoke", f="write", value=1, token=1 << 70, time_ns=1)]
    with pytest.raises(MalformedHistoryError, match="line 1: the token"):
        from_history(History(ops))
