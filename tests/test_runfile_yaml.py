"""YAML with places: what is read, what is refused, and where the message points."""

import pytest

from harness.errors import UsageError
from harness.mistakes import Mistake
from harness.yaml_places import NODES_MAX, Place, read_yaml


def test_every_key_and_value_has_its_place() -> None:
    document = read_yaml("a: 1\nb:\n  - x\n  - {c: 2}\n", "f")
    assert document.value == {"a": 1, "b": ["x", {"c": 2}]}
    assert document.keys["b",] == Place(2, 1)
    assert document.values["b", 0] == Place(3, 5)
    assert document.keys["b", 1, "c"] == Place(4, 6)
    assert document.values["b", 1, "c"] == Place(4, 9)


def test_a_mistake_below_a_text_points_to_the_text() -> None:
    document = read_yaml("faults:\n  - pause:who=x\n", "f")
    assert document.place(Mistake(("faults", 0, "who"), "")) == Place(2, 5)
    assert document.place(Mistake(("gone",), "")) == Place(1, 1)


def test_words_that_yaml_reads_as_something_else_stay_texts() -> None:
    text = "a: 1:30\nb: 2024-01-01\nc: 0x10\nd: 1_000\ne: ~\nf: 1e3\n"
    assert read_yaml(text, "f").value == {
        "a": "1:30",
        "b": "2024-01-01",
        "c": 16,
        "d": 1000,
        "e": None,
        "f": "1e3",
    }


def test_a_bare_word_that_became_a_boolean_gets_advice() -> None:
    document = read_yaml("lock: no\nstore: false\n", "f")
    assert document.value == {"lock": False, "store": False}
    surprising = Mistake(("lock",), "found false")
    assert 'write "no" in quotes' in document.line(document.place(surprising), surprising)
    meant = Mistake(("store",), "found false")
    assert "quotes" not in document.line(document.place(meant), meant)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", "f:2:1: a: found twice, first in line 1; allowed: once"),
        ("x: {a: 1, a: 2}\n", "f:1:11: x.a: found twice, first in line 1; allowed: once"),
        ("on: 1\n", 'f:1:1: found the key "on"'),
        ("? [a]\n: 1\n", 'f:1:3: found the key "a collection"'),
        ("a: .inf\n", 'f:1:4: a: found ".inf"; allowed: a finite number'),
        ("a: .nan\n", 'f:1:4: a: found ".nan"; allowed: a finite number'),
        ("a: !!int x\n", 'f:1:4: a: found "x"; allowed: a number'),
        ("a: !!python/name:os.system x\n", "f:1:4: a: found the tag"),
        ("a: !mine x\n", 'f:1:4: a: found the tag "!mine"'),
    ],
)
def test_wrong_data_is_listed_with_its_place(text: str, line: str) -> None:
    document = read_yaml(text, "f")
    shown = [document.line(place, mistake) for place, mistake in document.mistakes]
    assert len(shown) == 1
    assert shown[0].startswith(line)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a", "f:1:3: no valid YAML"),
        ("a: 1\n---\nb: 2\n", "f:2:1: found a second document"),
        ("a:\n\t- b\n", "f:2:1: no valid YAML"),
        ("a: *nobody\n", "f:1:4: no valid YAML"),
        ("a: b\x00\n", "f:1:5: found the character U+0000; allowed: printable text"),
        ("[" * 5000, "nested too deeply"),
        ("&a [*a]", "nested too deeply"),
        (b"a: 1\nbc: \xff\n", "f:2:5: found the byte 0xff; allowed: UTF-8 text"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_yaml(text, "f")
    assert words in str(caught.value)


def test_aliases_that_unfold_without_end_are_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 10)]
    with pytest.raises(UsageError, match=str(NODES_MAX)):
        read_yaml("\n".join(levels), "f")


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert read_yaml(b"\xef\xbb\xbfa: 1\n", "f").value == {"a": 1}
