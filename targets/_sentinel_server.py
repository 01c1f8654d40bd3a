"""Starts one Sentinel, as a script: it insists on a configuration file that it may rewrite.

What Sentinel has learned is in that file, so one that is there is left as it is.

    python -I -S _sentinel_server.py SERVER FILE [LINE]...
"""

import os
import sys


def main(server: str, file: str, *lines: str) -> None:
    """Write the configuration if there is none, and become the Sentinel."""
    if not os.path.exists(file):  # noqa: PTH110 - starts in 10 ms without pathlib
        with open(file, "w", encoding="utf-8") as conf:  # noqa: PTH123 - as above
            conf.write("\n".join([*lines, ""]))
    os.execv(server, [server, file, "--sentinel"])  # noqa: S606 - that is its task


if __name__ == "__main__":
    main(*sys.argv[1:])
