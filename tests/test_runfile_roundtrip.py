"""What a run writes to its run.yaml reads back as the same run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.note import PHASES
from harness.runfile import read, read_recorded, to_yaml
from harness.spec import FaultSpec, RunSpec, TargetSpec
from harness.units import Duration

_text = st.text(
    st.characters(exclude_categories=["C"]) | st.sampled_from("\n\t\x85\u2028"), max_size=12
)
_awkward = st.sampled_from(
    ["no", "1:30", "2024-01-01", "1e3", "~", "null", "=", "<<", "0x1f", "- a"]
)
_number = st.floats(allow_nan=False, allow_infinity=False)
_whole = st.integers(-(2**63), 2**63)
_leaf = st.one_of(st.booleans(), _whole, _number, _text, _awkward, st.none())
_value = st.one_of(_leaf, st.lists(_leaf, max_size=3))
_options = st.dictionaries(_text | _awkward, _value, max_size=3)
_name = _text.filter(lambda t: bool(t.strip())) | _awkward
_positive = st.floats(min_value=0, max_value=1e12, exclude_min=True, allow_nan=False)
_length = st.builds(Duration, _positive, st.booleans())
_seed = st.integers(0, 2**63 - 1)
_TAKEN = ("kind", "who", "at", "for", "after", "every", "count")
_seconds = st.floats(1e-3, 86400)
_fault_options = st.dictionaries(
    _text.filter(lambda key: key not in _TAKEN and key != "length"), _value, max_size=2
)


@st.composite
def faults(draw: st.DrawFn) -> FaultSpec:
    start = draw(st.sampled_from(["at", "phase", "random"]))
    every = draw(st.none() | _length) if start != "random" else None
    count = draw(st.none() | st.integers(1, 1000)) if start == "phase" or every else None
    return FaultSpec(
        kind=draw(_name),
        who=draw(_text),
        length=draw(_length),
        at=draw(_length) if start == "at" else None,
        phase=draw(st.sampled_from(PHASES)) if start == "phase" else None,
        random_count=draw(st.integers(1, 1000)) if start == "random" else None,
        after=draw(st.none() | _length) if start == "phase" else None,
        every=every,
        count=count,
        options=draw(_fault_options),
    )


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    lock = TargetSpec(draw(_name), draw(_options))
    store = TargetSpec(draw(_name), draw(_options))
    return RunSpec(
        lock=lock,
        store=lock if lock.name == store.name else store,
        workload=draw(_name),
        options=draw(_options),
        faults=tuple(draw(st.lists(faults(), max_size=3))),
        workers=draw(st.integers(1, 50)),
        readers=draw(st.integers(0, 50)),
        ttl_s=draw(_seconds),
        time_s=draw(_seconds),
        op_timeout_s=draw(_seconds),
        seed=draw(_seed),
    )


@given(specs())
def test_a_run_file_reads_back_as_the_same_run(
    tmp_path_factory: pytest.TempPathFactory, spec: RunSpec
) -> None:
    path = tmp_path_factory.getbasetemp() / "run.yaml"
    path.write_bytes(to_yaml(spec, {"fence": "checked", "facts": {"kernel": "6.1"}}).encode())
    again, recorded = read_recorded(path)
    assert again == spec
    assert recorded == {"fence": "checked", "facts": {"kernel": "6.1"}}


def test_it_also_reads_back_through_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support_plugins import install

    install(monkeypatch)
    spec = RunSpec(
        lock=TargetSpec("etcd", {"nodes": 5}),
        store=TargetSpec("valkey", {"fenced": True}),
        options={"keys": 2, "think": "20ms"},
        faults=(
            FaultSpec("pause", "holder", Duration(2.5, in_leases=True), phase="before-write"),
            FaultSpec("pause", "leader", Duration(0.5), random_count=2, options={"depth": 3}),
            FaultSpec(
                "pause", "all", Duration(1.0), at=Duration(0.1), every=Duration(3.0), count=2
            ),
        ),
        ttl_s=0.1 + 0.2,
        seed=7,
    )
    assert read(to_yaml(spec)) == spec


def test_times_are_written_as_people_write_them_where_that_is_exact() -> None:
    text = to_yaml(
        RunSpec(TargetSpec("a"), TargetSpec("b"), ttl_s=2.0, op_timeout_s=0.5, time_s=1e6)
    )
    assert "ttl: 2s\n" in text
    assert "op_timeout: 500ms\n" in text
    assert "time: 1000000s\n" in text
