"""ZooKeeper under faults: a frozen holder, and a holder who is cut off and told nothing.

Cases: C62 (a flag that outlives the session).
"""

from pathlib import Path

import pytest

from harness.errors import UsageError
from targets.zookeeper import ZooKeeper
from tests.support_faults import faulted

ONE = "nodes=1,fsync=false"
LATE = "late-loss-notice"  # when it wakes, its library may take its time to tell
COMMON = {"workers": 2, "readers": 0, "op_timeout": "500ms"}


@pytest.fixture(autouse=True)
def there() -> None:
    pytest.importorskip("kazoo")
    try:
        ZooKeeper().servers()
    except UsageError as missing:
        pytest.skip(f"zookeeper: {missing}")


@pytest.mark.sandbox
@pytest.mark.real
@pytest.mark.parametrize("fence", ["none", "guarded"])
def test_a_frozen_holder_is_refused_by_the_fence_and_by_nothing_else(
    fence: str, tmp_path: Path
) -> None:
    run = faulted(
        tmp_path,
        "pause:who=holder,at=before-write,for=4leases,count=1",
        lock=f"zookeeper[{ONE}]",
        store=f"zookeeper[{ONE},fence={fence}]",
        ttl="1s",
        time="7s",
        **COMMON,
    )
    if fence == "none":
        assert run.names - {"lost-update", LATE} == {"stale-owner-write"}
    else:
        assert run.names <= {LATE}, run.results.verdict
        assert run.results.verdict.stats["stale_refused"] > 0


@pytest.mark.sandbox
@pytest.mark.real
@pytest.mark.parametrize("trust", ["connected", "session"])
def test_c62_who_waits_for_a_word_about_the_session_learns_too_late(
    trust: str, tmp_path: Path
) -> None:
    """The library knows after two thirds of the time-out that nothing comes any more."""
    run = faulted(
        tmp_path,
        "partition:who=holder,at=before-write,for=2.5leases,count=1,shape=worker-lock",
        lock=f"zookeeper[{ONE},trust={trust}]",
        store="atlasmart",
        workload="fencing[rounds=200,check=false]",
        ttl="2s",
        time="9s",
        **COMMON,
    )
    assert ("late-loss-notice" in run.names) is (trust == "session")
    assert "stale-owner-write" in run.names  # nobody asked, so nothing but the store could refuse
