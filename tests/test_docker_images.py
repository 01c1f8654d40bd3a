"""Which images of ours are removed when they are old, and which never are."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.docker.images import IMAGE_LABEL, drop_old

HOUR_S = 3600.0


class Engine:
    """Images with their ages in seconds, by name; a container uses some of them."""

    def __init__(self, ages: Mapping[str, float], used: Sequence[str] = ()) -> None:
        self.ages = dict(ages)
        self.asked: dict[str, float] = {}
        self._used = used

    def images(self, filters: Mapping[str, str]) -> list[dict[str, Any]]:
        assert filters == {"label": IMAGE_LABEL}
        return [
            {
                "Id": f"sha256:{name}",
                "RepoTags": ["<none>:<none>"] if name.startswith("lost") else [name],
                "Created": time.time() - age,
                "Labels": {IMAGE_LABEL: name.partition(":")[0]},
            }
            for name, age in self.ages.items()
        ]

    def inspect_image(self, image: str) -> dict[str, Any]:
        name = image.removeprefix("sha256:")
        ago = self.asked.get(name)
        if ago is None:
            return {"Metadata": {"LastTagTime": "0001-01-01T00:00:00Z"}}
        told = datetime.fromtimestamp(time.time() - ago, UTC)
        return {"Metadata": {"LastTagTime": told.strftime("%Y-%m-%dT%H:%M:%S.%f000Z")}}

    def remove_image(self, name: str) -> None:
        from docker.errors import APIError

        if name in self._used:
            raise APIError("conflict: a container uses it")
        del self.ages[name.removeprefix("sha256:")]


def test_the_old_ones_go_and_the_newest_of_each_kind_stays() -> None:
    engine = Engine({"node:a": 9 * HOUR_S, "node:b": 5 * HOUR_S, "program:a": 9 * HOUR_S})
    assert drop_old(engine) == 1
    assert set(engine.ages) == {"node:b", "program:a"}


def test_what_is_young_was_asked_for_or_is_used_stays() -> None:
    ages = {"node:new": 1.0, "node:young": 500.0, "node:asked": 9 * HOUR_S}
    engine = Engine({**ages, "node:used": 9 * HOUR_S}, used=["node:used"])
    engine.asked["node:asked"] = 10.0
    assert drop_old(engine) == 0
    assert set(engine.ages) == {"node:new", "node:young", "node:asked", "node:used"}


def test_one_without_a_name_goes_by_its_number() -> None:
    engine = Engine({"lost:1": 9 * HOUR_S, "lost:2": 2.0})
    assert drop_old(engine) == 1
    assert set(engine.ages) == {"lost:2"}


def test_somebody_else_may_remove_one_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker.errors import ImageNotFound

    engine = Engine({"node:a": 9 * HOUR_S, "node:b": 5 * HOUR_S, "node:c": 1.0})
    look = engine.inspect_image

    def gone(image: str) -> dict[str, Any]:
        if image == "sha256:node:b":
            raise ImageNotFound("no such image")
        return look(image)

    monkeypatch.setattr(engine, "inspect_image", gone)
    assert drop_old(engine) == 1
    assert set(engine.ages) == {"node:b", "node:c"}


@pytest.mark.parametrize("text", ["", "yesterday"])
def test_an_engine_that_keeps_no_time_of_tags(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine({"node:a": 9 * HOUR_S, "node:b": 1.0})
    monkeypatch.setattr(engine, "inspect_image", lambda _: {"Metadata": {"LastTagTime": text}})
    assert drop_old(engine) == 1
