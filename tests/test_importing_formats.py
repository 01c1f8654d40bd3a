"""Each format by small samples: what is read, what is left out, what is refused and where."""

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.errors import MalformedHistoryError
from harness.importing import Imported, edn, load
from harness.importing.edn import Keyword, forms, plain
from tests.support_importing import as_edn, as_jsonl, as_log

LEGAL = """
0 invoke write 1
1 invoke read -
0 ok write 1
1 ok read 1
1 invoke cas [1 2]
1 fail cas [1 2]
"""
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str | bytes) -> Path:
        path = tmp_path / "history"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return to_file


def rows(loaded: Imported) -> list[tuple[Any, ...]]:
    return [(op.process, op.type, op.f, op.value) for op in loaded.history.ops]


EXPECTED = [
    (0, "invoke", "write", 1),
    (1, "invoke", "read", None),
    (0, "ok", "write", 1),
    (1, "ok", "read", 1),
    (1, "invoke", "cas", [1, 2]),
    (1, "fail", "cas", [1, 2]),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (as_edn(LEGAL), "jepsen"),
        ("[" + as_edn(LEGAL) + "]", "jepsen"),
        ("; a remark\n(" + as_edn(LEGAL) + ")", "jepsen"),
        ("\ufeff" + as_edn(LEGAL), "jepsen"),
        (as_edn(LEGAL).replace("{", "#jepsen.history.Op{"), "jepsen"),
        (as_log(LEGAL), "porcupine"),
        ("2021-02-22 12:23:55{GMT} INFO [main] jepsen.cli: start\n" + as_log(LEGAL), "porcupine"),
        (as_log(LEGAL).replace("INFO  jepsen.util - ", ""), "porcupine"),
    ],
)
def test_one_history_in_every_notation(write: Write, text: str, found: str) -> None:
    loaded = load(write(text))
    assert loaded.format == found
    assert rows(loaded) == EXPECTED
    times = [op.time_ns for op in loaded.history.ops]
    assert times == sorted(set(times)), "the order of the file is the order of the events"


def test_json_lines_with_and_without_times(write: Write) -> None:
    loaded = load(write(as_jsonl(LEGAL.replace("[1 2]", "[1,2]"))))
    assert loaded.format == "jsonl"
    assert [row[1:] for row in rows(loaded)] == [row[1:] for row in EXPECTED]
    timed = '{"process":1,"type":"invoke","f":"read","time_ns":5}\n'
    assert load(write(timed)).history.ops[0].time_ns == 5
    with pytest.raises(MalformedHistoryError, match="is no time of a run"):
        load(write(timed.replace("5", str(1 << 70))))


def test_a_torn_last_line_of_ours_is_a_cut(write: Write) -> None:
    loaded = load(write(as_jsonl(LEGAL.replace("[1 2]", "[1,2]"))[:-9]))
    assert loaded.history.cut
    assert len(loaded.history.ops) == len(EXPECTED) - 1


def test_gzip_is_unpacked_whatever_the_name(write: Write) -> None:
    packed = gzip.compress(as_edn(LEGAL).encode())
    assert rows(load(write(packed))) == EXPECTED
    with pytest.raises(MalformedHistoryError, match="damaged"):
        load(write(packed[:-12]))
    with pytest.raises(MalformedHistoryError, match="damaged"):
        load(write(packed[:30] + b"\x00\xff" * 9 + packed[48:]))


def test_zstd_is_unpacked(write: Write) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(as_edn(LEGAL).encode())
    assert rows(load(write(packed))) == EXPECTED
    with pytest.raises(MalformedHistoryError, match="damaged"):
        load(write(packed[:8] + b"\xff" * 16))


def test_zstd_without_a_reader_is_refused_with_one_clear_message(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    path = write(b"\x28\xb5\x2f\xfd" + bytes(20))
    assert main(["check", str(path)]) == 254
    assert "install `zstandard`" in capsys.readouterr().err


def test_times_are_kept_where_they_agree_with_the_order(write: Write) -> None:
    text = "".join(
        f"{{:process {i}, :type :invoke, :f :read, :value nil, :time {t}, :index {i}}}\n"
        for i, t in enumerate([100, 100, 90, 500, -3, 10**30])
    )
    assert [op.time_ns for op in load(write(text)).history.ops] == [100, 101, 102, 500, 501, 502]


def test_nemesis_and_remarks_are_left_out_and_counted(write: Write) -> None:
    text = """
    {:process :nemesis, :type :info, :f :start, :value "cut"}
    {:process 3, :type :info, :f :log, :value "hello"}
    {:process 1, :type :invoke, :f :write, :value 3}
    {:process :nemesis, :type :info, :f :stop, :value {:a #{1 2}}}
    {:process 1, :type :info, :f :write, :value 3, :error [:timeout "no answer" nil]}
    """
    loaded = load(write(text))
    assert [op.error for op in loaded.history.ops] == [None, "timeout: no answer: null"]
    assert list(loaded.lines) == [4, 6]
    assert dict(loaded.skipped) == {
        "operations of the nemesis": 2,
        "infos of processes with nothing open": 1,
    }


def test_a_time_out_in_the_place_of_a_value_is_an_error(write: Write) -> None:
    text = as_log("2 invoke cas [1 2]\n2 info cas :timed-out\n3 invoke read -\n3 fail read :timed")
    done = load(write(text)).history.ops[1::2]
    assert [(op.value, op.error) for op in done] == [(None, "timed-out"), (None, "timed")]


def test_key_value_maps_of_porcupine(write: Write) -> None:
    text = """{:process 0, :type :invoke, :f :append, :key "4", :value "x \\"0\\" y"}
    {:process 0, :type :ok, :f :append, :key "4", :value "x \\"0\\" y"}"""
    loaded = load(write(text))
    assert loaded.format == "porcupine"
    assert loaded.initial == ""
    assert [(op.key, op.value) for op in loaded.history.ops] == [("4", 'x "0" y')] * 2


@pytest.mark.parametrize("wanted", ["jepsen", "maelstrom"])
def test_tuples_of_independent_keys(write: Write, wanted: Any) -> None:
    text = as_edn("0 invoke read [7 -]\n1 invoke cas [:a [0 2]]\n0 ok read [7 3]\n1 info cas -")
    loaded = load(write(text), wanted)
    assert [(op.key, op.value) for op in loaded.history.ops] == [
        ("7", None),
        (":a", [0, 2]),
        ("7", 3),
        (":a", None),
    ]


def test_vectors_as_values_are_no_tuples_where_reads_have_none(write: Write) -> None:
    loaded = load(write(as_edn("0 invoke write [1 2]\n0 ok write [1 2]\n1 invoke read -")))
    assert loaded.history.ops[0].key is None
    assert loaded.history.ops[0].value == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 invoke cas [2 0]\n1 info cas [2 0]\n1 invoke read -", "line 3: .*again after an info"),
        ("6 invoke read [6 -]\n3 invoke read [3 -]\n6 ok read -\n3 ok read -", "line 3: .*on 6"),
        ("1 invoke read -\n1 invoke read -", "line 2: .*while its last operation is open"),
        ("1 ok read 3", "line 1: .*without an invocation"),
        ("1 invoke read -\n1 ok write 3", "line 2: .*completes write but invoked read"),
        ("1 begin read -", "line 1: 'begin' is no type"),
        ('0 invoke read [7 -]\n1 invoke read ["7" -]', "line 2: key .*number"),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(write: Write, text: str, message: str) -> None:
    with pytest.raises(MalformedHistoryError, match=message):
        load(write(as_edn(text)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{:process 1\n", "line 1: .*never ends"),
        ("[{:process 1, :type :invoke, :f :read}\n", "never ends"),
        ('{:process 1, :type\n :invoke, :f "read}', "never ends"),
        ("[] {}", "line 1: something follows"),
        ("(})", "closes nothing"),
        ("{:a 1 :b}", "no value"),
        ("\n[1 2]", "line 2: 1 is no map"),
        ("{:process 1.5, :type :ok, :f :read}", "line 1: no process"),
        ("{:process 1, :type 7, :f :read}", "line 1: no :type"),
        ("(" + "[" * 100, "nested"),
        ("{:a " + "9" * 5000 + "}", "digits"),
        ("hello world", "neither JSON lines, nor EDN"),
        ('[{"process": 1}]', "JSON array"),
        ('{"process": 1}\n', "line 1: no op"),
        ("4 :invoke :write [1", "line 1: the value"),
        ("\x00\x01\x02", "neither JSON lines"),
    ],
)
def test_what_is_no_file_of_a_history_is_refused(write: Write, text: str, message: str) -> None:
    with pytest.raises(MalformedHistoryError, match=message):
        load(write(text))


def test_a_form_of_too_many_words_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edn, "WORDS_MAX", 1000)
    load(write("{:process 1, :type :info, :f :read, :a [" + "1 " * 980 + "]}"))
    with pytest.raises(MalformedHistoryError, match="line 1: the form here has more than 1000"):
        load(write("{:process 1, :type :info, :f :read, :a [" + "1 " * 1000 + "]}"))


def test_odd_values_of_edn() -> None:
    text = r"""[nil true :k/w -3 +4 5N 1.5 2e3 7M 1/2 ##NaN \a \newline "é\n\u00e9\ud800" sym
    #{1} (2 3) {:a {[1] 2}} #inst "2020" #_ gone #_ #_ gone too ^{:m 1} x #"re\d" , 1e999 []]"""
    (value,) = (plain(form) for _, form in forms(io.BytesIO(text.encode()), unwrap=False))
    assert value == [
        *[None, True, ":k/w", -3, 4, 5, 1.5, 2000.0, 7.0, "1/2", "##NaN", "\\a", "\\newline"],
        *["é\né\ufffd", "sym", [1], [2, 3], {":a": {"[1]": 2}}, "2020", "x", '#"re\\d"'],
        *["1e999", []],
    ]


def test_forms_are_the_same_wherever_the_stream_is_cut() -> None:
    text = "[" + '{:a "b\nc", :d [1 2], :e #{:f}} ; remark\n {:g 12345 :h nil}\n' * 20 + "]"

    class Drip(io.RawIOBase):
        """Gives a few bytes at a time."""

        def __init__(self, data: bytes, step: int) -> None:
            self.rest, self.step = data, step

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part, self.rest = self.rest[: self.step], self.rest[self.step :]
            buffer[: len(part)] = part
            return len(part)

    whole = list(forms(io.BytesIO(text.encode()), unwrap=True))
    assert len(whole) == 40
    assert whole[2] == (4, {"a": "b\nc", "d": [1, 2], "e": [Keyword("f")]})
    for step in (1, 7, 64):
        stream = io.BufferedReader(Drip(text.encode(), step), 16)
        assert list(forms(stream, unwrap=True)) == whole
