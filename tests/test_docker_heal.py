"""A holder undoes all it can, whatever fails."""

import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest

from harness.docker.agent import Agent


@pytest.mark.parametrize(
    "broken", ["_rules", "_proxies", "_shaper", "_volume", "_orders", "_clocks"]
)
def test_what_cannot_be_undone_keeps_nothing_else_from_being_undone(broken: str) -> None:
    agent = Agent.__new__(Agent)
    done = {
        "_rules": MagicMock(),
        "_proxies": MagicMock(),
        "_shaper": MagicMock(remove=AsyncMock()),
        "_volume": MagicMock(),
        "_orders": MagicMock(frozen=False),
        "_clocks": MagicMock(true_clocks=AsyncMock()),
    }
    done["_clocks"].owners.return_value = ["x"]
    calls = {
        "_rules": done["_rules"].remove,
        "_proxies": done["_proxies"].heal,
        "_shaper": done["_shaper"].remove,
        "_volume": done["_volume"].make_room,
        "_orders": done["_orders"].resume_all,
        "_clocks": done["_clocks"].true_clocks,
    }
    vars(agent).update(done, _owners={"x"}, _tracing=None)
    calls[broken].side_effect = OSError("broken")
    with pytest.raises(OSError, match="broken"):
        asyncio.run(agent.heal())
    for name, call in calls.items():
        assert call.call_count == 1, name
