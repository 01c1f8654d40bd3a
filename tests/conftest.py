"""What every test process has of its own, whichever tests it runs."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no finding.  One commit has one outcome; new examples are the nightly profile's.
settings.register_profile(
    "busy",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("HYPOTHESIS_PROFILE") != "nightly",
)
settings.load_profile("busy")


@pytest.fixture(autouse=True, scope="session")
def own_ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the ledgers of this process's runs apart from the user's and other processes' ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
