"""Whose cuts and bad links there are, on any backend: what counts when, what a failure leaves."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import pytest

from harness.cutting import Cutting, Prober
from harness.shape import Shape
from harness.shaping import Shaping
from harness.site import Pair, Passage

AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
AC: Pair = ("a", "c")
SLOW = Shape(delay_s=1.0)
LOSSY = Shape(loss=0.5)


class PaperProber:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.prepared: list[set[frozenset[str]]] = []
        self.looked: list[set[Pair]] = []

    async def prepare(self, links: Iterable[frozenset[str]]) -> None:
        self.prepared.append(set(links))

    async def look(
        self, pairs: Sequence[Pair], cut: Collection[Pair], wait_s: float
    ) -> Mapping[Pair, Passage]:
        self.looked.append(set(cut))
        return {pair: Passage(datagram=pair not in cut, sent_s=wait_s) for pair in pairs}


class PaperCuts(Cutting):
    """A place that does what it is told, or `fails`; `meanwhile` is called while it does."""

    def __init__(self) -> None:
        super().__init__(0.1, self._lose)
        self.prober = PaperProber()
        self.now: tuple[set[Pair], set[Pair]] = (set(), set())
        self.lost: list[set[Pair]] = []
        self.keeps = False
        self.fails = False
        self.meanwhile: Callable[[], None] = lambda: None

    async def _lose(self, pairs: frozenset[Pair]) -> None:
        if self.keeps:
            raise OSError("kept")
        self.lost.append(set(pairs))

    def _prober(self) -> Prober:
        return self.prober

    async def _tell(self, silent: frozenset[Pair], told: frozenset[Pair]) -> None:
        self.meanwhile()
        self.now = (set(silent), set(told))
        if self.fails:
            self.fails = False
            raise OSError("refused")


class PaperLinks(Shaping):
    """The same for bad links."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Mapping[Pair, Shape] = {}
        self.fails = False

    async def _tell(self, bad: Mapping[Pair, Shape]) -> None:
        self.now = bad
        await asyncio.sleep(0)
        if self.fails:
            self.fails = False
            raise OSError("refused")


def cuts(test: Callable[[PaperCuts], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(PaperCuts()))


def links(test: Callable[[PaperLinks], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(PaperLinks()))


def test_cuts_add_up_and_a_silent_one_outdoes_one_that_tells() -> None:
    async def test(place: PaperCuts) -> None:
        await place.cut("x", [AB, AC], reject=True)
        await place.cut("y", [AB])
        assert place.now == ({AB}, {AC})
        await place.mend("y")
        assert place.now == (set(), {AB, AC})
        await place.mend("x")
        await place.mend("x")
        assert place.now == (set(), set())

    cuts(test)


def test_only_what_is_newly_cut_is_prepared_and_lost() -> None:
    async def test(place: PaperCuts) -> None:
        await place.cut("x", [AB])
        await place.cut("y", [AB, BA, AC])
        assert place.prober.prepared == [{frozenset("ab")}, {frozenset("ac")}]
        assert place.lost == [{AB}, {BA, AC}]

    cuts(test)


def test_a_look_knows_what_is_cut_and_waits_longer_where_it_is_told_to() -> None:
    async def test(place: PaperCuts) -> None:
        await place.cut("x", [AB])
        passed = await place.passes([AB, BA], 1.0)
        assert place.prober.looked == [{AB}]
        assert passed == {AB: Passage(False, sent_s=1.1), BA: Passage(True, sent_s=1.1)}

    cuts(test)


def test_what_is_ordered_counts_from_the_order_on_and_until_it_is_mended() -> None:
    async def test(place: PaperCuts) -> None:
        seen = []
        place.meanwhile = lambda: seen.append(place.cut_now())
        began_s = time.monotonic()
        await place.cut("x", [AB])
        await place.mend("x")
        assert seen == [{AB}, {AB}]
        assert not place.cut_now()
        assert place.cut_since(began_s) == {AB}
        assert not place.cut_since(time.monotonic() + 1)

    cuts(test)


@pytest.mark.parametrize(("how", "words"), [("fails", "refused"), ("keeps", "kept")])
def test_a_cut_that_fails_or_behind_which_packets_are_kept_changes_nothing(
    how: str, words: str
) -> None:
    async def test(place: PaperCuts) -> None:
        await place.cut("x", [AB])
        setattr(place, how, True)
        with pytest.raises(OSError, match=words):
            await place.cut("y", [AC])
        assert place.now == ({AB}, set())
        assert place.cut_now() == {AB}

    cuts(test)


def test_a_mend_that_fails_is_not_taken_back() -> None:
    async def test(place: PaperCuts) -> None:
        await place.cut("x", [AB])
        place.fails = True
        with pytest.raises(OSError, match="refused"):
            await place.mend("x")
        assert place.now == (set(), set())
        assert not place.cut_now()

    cuts(test)


def test_bad_links_of_several_owners_add_up_also_when_they_are_ordered_at_once() -> None:
    async def test(place: PaperLinks) -> None:
        await asyncio.gather(place.shape("x", [AB], SLOW), place.shape("y", [AB, AC], LOSSY))
        assert place.now == {AB: Shape(delay_s=1.0, loss=0.5), AC: LOSSY}
        assert place.shaped_now(but="y") == {AB: SLOW}
        await asyncio.gather(place.unshape("x"), place.unshape("y"), place.unshape("y"))
        assert place.now == place.shaped_now() == {}

    links(test)


def test_a_bad_link_that_fails_changes_nothing_and_a_good_one_is_not_taken_back() -> None:
    async def test(place: PaperLinks) -> None:
        await place.shape("x", [AB], SLOW)
        place.fails = True
        with pytest.raises(OSError, match="refused"):
            await place.shape("y", [AC], LOSSY)
        assert place.now == place.shaped_now() == {AB: SLOW}
        place.fails = True
        with pytest.raises(OSError, match="refused"):
            await place.unshape("x")
        assert place.now == place.shaped_now() == {}

    links(test)
