"""Text of foreign systems can be looked at and cannot act."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.anomalies import catalogue
from reports import rules
from reports.svg import add, serialise
from reports.text import at, brief, clean, clean_block, count, lasting, listing, quoted, show, who

ANY = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANY)
def test_clean_text_is_printable_valid_xml_on_one_line(text: str) -> None:
    shown = clean(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    shown.encode("utf-8")
    root = ET.Element("a")
    add(root, "text", text, title=text)
    again = ET.fromstring(serialise(root))  # noqa: S314 - made by us
    assert again[0].text in (shown, None)
    assert again[0].get("title") == shown


@given(ANY)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_harmless_text_is_left_alone() -> None:
    for text in ("w1-17", "größer", "鍵", "🔒", "a\u00a0b"):
        assert clean(text) == text


def test_what_cannot_be_seen_is_written_out() -> None:
    assert clean("a\x1b[2Jb\x00") == "a\\x1b[2Jb\\x00"
    assert clean("one\ntwo\ttabs\r") == "one⏎two tabs␍"
    assert clean("\u202egnp.exe") == "\\u202egnp.exe"
    assert clean("\ud800") == "\\ud800"
    assert clean_block("one\ntwo\x07") == "one\ntwo\\x07"


def test_long_text_is_cut_and_its_length_is_said() -> None:
    assert clean("x" * 5_000, 10) == "xxxxxxxxxx… (5,000 characters)"
    assert len(show({"a": "x" * 10**6})) < 200
    assert brief("x" * 100, 14) == "xxxxxxxxxxxxx…"
    assert brief("short") == "short"


def test_values_are_shown_as_people_write_them() -> None:
    assert show("w1-1") == "w1-1"
    assert show({"ttl_s": 2.0}) == '{"ttl_s": 2.0}'
    assert show(None) == "null"
    assert quoted("x") == "“x”"
    loop: list[object] = []
    loop.append(loop)
    assert show(loop) == "a list that cannot be shown"


@pytest.mark.parametrize(
    ("length_ns", "words"),
    [
        (0, "0 µs"),
        (840_000, "840 µs"),
        (12_000_000, "12 ms"),
        (999_600_000, "1 s"),
        (3_499_000_000, "3.5 s"),
        (107_120_000_000, "107.12 s"),
        (5_000_000_000, "5 s"),
        (725_000_000_000, "12 min 5 s"),
        (-5_000_000, "-5 ms"),
    ],
)
def test_lengths_of_time(length_ns: int, words: str) -> None:
    assert lasting(length_ns) == words


def test_words_of_a_sentence() -> None:
    assert at(1_032_400_000) == "1.032 s"
    assert count(1, "write") == "1 write"
    assert count(1204, "property", "properties") == "1,204 properties"
    assert listing([]) == ""
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert who("3") == "process 3"
    assert who("w1") == "w1"


def test_every_anomaly_of_the_catalogue_has_its_property_and_its_cure() -> None:
    for name in catalogue():
        assert rules.must(name).endswith("."), name
        assert rules.cure(name), name
    assert rules.must("odd") == rules.cure("odd") == ""
