"""The catalogue of anomalies is whole, and says of each what a person needs."""

import pytest

from harness import anomalies
from harness.errors import UsageError

NAMES = {
    *("stale-owner-write", "lost-update", "forgotten-fence", "duplicate-grant"),
    *("fence-regression", "fence-collision", "forged-token", "premature-expiry", "zombie-lease"),
    *("late-loss-notice", "minority-grant", "unearned-hold", "refused-newest"),
    *("wrong-scope-fence", "stale-read", "read-reversal", "lost-ack", "aborted-read"),
    *("phantom-read", "duplicate-effect", "two-values-chosen", "unauthorised-effect", "watch-leak"),
    "no-progress-after-heal",
}


def test_the_catalogue_has_every_name_of_the_contract() -> None:
    assert set(anomalies.catalogue()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_page_is_whole(name: str) -> None:
    page = anomalies.find(name)
    assert page.says.endswith(".")
    assert page.seeds
    assert page.fix
    assert len(page.drawing.strip().splitlines()) >= 1
    text = anomalies.lines(page)
    assert all(len(line) <= 100 for line in text)
    assert text[0] == name
    for heading in ("How it comes about", "How to fix it"):
        assert heading in text


def test_gravity_puts_damage_before_delay() -> None:
    assert anomalies.gravity("stale-owner-write") == 0
    assert anomalies.gravity("lost-update") < anomalies.gravity("zombie-lease")
    assert anomalies.gravity("never-heard-of") == len(NAMES)


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean zombie-lease"):
        anomalies.find("zombi-lease")
