"""Starts one ZooKeeper server on a data folder, as a script: writes its configuration, becomes it.

A server is told who it is by a file `myid` in its data folder, and who the others are by a file of
properties; neither can be said on a command line.  Its logs go to standard error.

    python -I -S _zookeeper_server.py CONFIGURATION NUMBER JAVA [ARGUMENT OF JAVA]...

CONFIGURATION is one argument of lines; the last argument of java is the file that they go to.
"""

import os
import sys


def main(configuration: str, number: str, java: str, *arguments: str) -> None:
    """Become the server."""
    path = arguments[-1]
    folder = os.path.dirname(path)  # noqa: PTH120 - starts in 10 ms without pathlib
    for name, text in ((path, configuration), (f"{folder}/myid", number)):
        with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
            file.write(f"{text}\n")
    os.execv(java, [java, *arguments])  # noqa: S606 - that is its task


if __name__ == "__main__":
    main(*sys.argv[1:])
