"""Where the agent begins: its arguments are a JSON object, and what sshd says of the connection.

`lease_s` seconds of silence end it; `token` is the run's name; `data` is a folder on the host below
which the nodes' data lie, None for a file system in memory.  The other argument is SSH_CONNECTION:
client address, its port, server address, its port.  It is missing where no sshd stands between.
"""

import asyncio
import json
import sys

from harness.ssh.agent import chain
from harness.ssh.agent.serve import Agent


def main() -> int:
    """Be the agent; return its exit code."""
    options = json.loads(sys.argv[2])
    options["controller"] = " ".join(sys.argv[3:])

    async def serve(means: chain.Means) -> None:
        await Agent(options, means).serve()

    def agent(means: chain.Means) -> None:
        asyncio.run(serve(means))

    return chain.run(agent, options["token"])
