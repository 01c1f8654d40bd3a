"""The printed command describes the same run."""

import shlex

import pytest

from harness.flags import values
from harness.repeat import command
from harness.runfile import from_flags, read
from harness.spec import RunSpec

RUNS = [
    "{lock: atlasmart, store: atlasmart}",
    "{lock: atlasmart, store: 'atlasmart[fence=checked]', seed: 9, workers: 5, readers: 0}",
    "{lock: atlasmart, store: atlasmart, ttl: 500ms, time: 90s, op_timeout: 1.25s}",
    """{lock: atlasmart, store: atlasmart, faults: [
        'pause:who=holder,at=before-write,for=2.5leases,count=2',
        'pause:who=all,at=3s,for=400ms,every=1s',
        'pause:who=worker:2,at=random,count=4,for=1lease']}""",
    """{lock: atlasmart, store: atlasmart,
        workload: {name: fencing, options: {keys: 3, think: 5ms, rate: 7, check: false}}}""",
    "{lock: atlasmart, store: atlasmart, workload: 'fencing[rounds=5..15,retry=20ms]'}",
    """{lock: atlasmart, store: atlasmart, faults: [
        {kind: message, who: all, at: 1s, for: 1s, match: '[a-z]{2,3}" x'},
        {kind: partition, who: w1, at: 1s, for: 1s, shape: grudge, pairs: 'w1>w2 w2>w1'}]}""",
]


def from_command(line: str) -> RunSpec:
    """Read a command line as `winkle run` does."""
    words = shlex.split(line)
    assert words[:2] == ["winkle", "run"]
    given: dict[str, object] = {"fault": []}
    names = ("lock", "store", "workload", "backend", "ttl", "time", "op_timeout", "workers")
    given |= dict.fromkeys((*names, "readers", "seed"))
    rest = iter(words[2:])
    for word in rest:
        name = word.removeprefix("--").replace("-", "_")
        if name == "fault":
            given["fault"] = [*given["fault"], next(rest)]  # type: ignore[misc]
        else:
            given[name] = next(rest)
    return from_flags(values(given))


@pytest.mark.parametrize("text", RUNS)
def test_the_command_is_the_run(text: str) -> None:
    spec = read(text, default_seed=3)
    assert from_command(command(spec)) == spec
