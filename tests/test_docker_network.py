"""Cuts between containers, proven by what passes between them."""

import asyncio
from collections.abc import Iterator

import pytest

from harness.docker.engine import RUN_LABEL
from harness.docker.lab import DockerLab
from harness.docker.project import SILENCE_S
from harness.shape import Shape
from harness.site import Pair, Passage
from tests.support_docker import BOUND_S, api, await_nothing, lab, live, needs_engine
from tests.support_docker import node as node_of

pytestmark = needs_engine()
AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
CB: Pair = ("c", "b")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab"), "a", "b", "c") as made:
        assert made.network.unavailable(reject=True) is None
        yield made


def whole(passed: Passage) -> bool:
    return passed.datagram and passed.new is True and passed.old is not False


def test_a_cut_has_one_direction_and_concerns_old_and_new_connections(here: DockerLab) -> None:
    async def work() -> None:
        network = here.network
        before = await network.passes([AB, BA, CB])
        assert all(whole(passed) for passed in before.values())
        counted = await network.stopped_packets()
        await network.cut("me", [AB])
        during = await network.passes([AB, BA, CB])
        while during[AB].old is None:  # no connection was made in the time that a cut has
            await network.mend("me")
            await network.cut("me", [AB])
            during = await network.passes([AB, BA, CB])
        assert during[AB] == Passage(datagram=False, old=False, new=False, sent_s=during[AB].sent_s)
        assert during[BA].datagram
        assert whole(during[CB])
        assert await network.stopped_packets() > counted
        await network.mend("me")
        after = await network.passes([AB, BA])
        assert after[AB].old
        assert all(whole(passed) for passed in after.values())

    live(work)


def test_cuts_of_several_owners_add_up(here: DockerLab) -> None:
    async def work() -> None:
        network = here.network
        await network.cut("one", [AB, CB])
        await network.cut("two", [AB, BA])
        assert network.cut_now() == {AB, BA, CB}
        await network.mend("one")
        passed = await network.passes([AB, BA, CB])
        assert passed[AB].nothing
        assert passed[BA].nothing
        assert whole(passed[CB])
        await network.mend("two")
        await network.mend("two")
        assert all(whole(one) for one in (await network.passes([AB, BA, CB])).values())
        assert not network.cut_now()

    live(work)


def test_a_cut_that_tells_refuses_senders(here: DockerLab) -> None:
    async def work() -> None:
        network = here.network
        await network.cut("me", [AB, BA], reject=True)
        passed = await network.passes([AB, BA, CB])
        await network.mend("me")
        assert passed[AB].refused
        assert passed[BA].refused
        assert passed[AB].nothing
        assert passed[BA].nothing
        assert whole(passed[CB])
        assert all(whole(one) for one in (await network.passes([AB, BA])).values())

    live(work)


def test_the_hub_reaches_every_port_whatever_is_cut(here: DockerLab) -> None:
    async def work() -> None:
        b = node_of(here, "b").holder
        await here.network.cut("me", [AB, CB])
        taken = await here._hub.request("reach", *b.connections, 4.0)
        refused = await here._hub.request("reach", b.address, 1, 4.0)
        await here.network.mend("me")
        assert (taken, refused) == ("accepted", "refused")

    live(work)


def test_nothing_leads_out_of_the_network_of_a_run(here: DockerLab) -> None:
    networks = here.project.api.networks(names=[here.project.network])
    assert [network["Internal"] for network in networks] == [True]


def test_a_holder_that_hears_nothing_heals_by_itself(here: DockerLab) -> None:
    """The heartbeat stops, as with a harness that hangs, and all goes without any order."""

    async def work() -> None:
        assert here.links.unavailable() is None
        await here.network.cut("me", [AB])
        await here.links.shape("me", [CB], Shape(delay_s=0.1))
        late = (await here.links.measure([CB], 50, 64, 0.01, BOUND_S))[CB].least_s
        assert late is not None
        assert late >= 0.1
        holders = list(here._holders)
        here._holders.clear()
        try:
            await asyncio.sleep(SILENCE_S + 4)  # a look would be a line, and end the silence
            assert (await here.network.passes([AB]))[AB].datagram
            soon = (await here.links.measure([CB], 50, 64, 0.01, BOUND_S))[CB].least_s
            assert soon is not None
            assert soon < 0.1
        finally:
            here._holders.extend(holders)
        await here.network.mend("me")
        await here.links.unshape("me")

    live(work)


def test_a_lab_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with api() as client:
        with lab(tmp_path_factory.mktemp("second"), "a") as second:
            only = {"label": f"{RUN_LABEL}={second.project.run}"}
            assert len(client.containers(filters=only)) >= 2  # the envoy is started by a thread
        assert client.containers(all=True, filters=only) == []
        assert not client.volumes(filters=only)["Volumes"]

        def left() -> set[str]:
            return {one["Name"] for one in client.networks(filters=only)}

        await_nothing(left, client, 0.0)
