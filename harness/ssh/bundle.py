"""The agent as one file: what `harness.ssh.agent` needs, packed so that any Python 3.8 can run it.

The host keeps it in memory, in a file without a name, and Python imports from there.  The sources
are the harness's own; the one change is a line that keeps annotations from being evaluated, because
they are written for a newer Python.  Packages are empty here: the harness's own `__init__` files
know much that a host does not have.
"""

import functools
import io
import json
import shlex
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent
_SHARED = (
    "harness/clocks.py",
    "harness/local/disk.py",
    "harness/local/line.py",
    "harness/local/namespaces.py",
    "harness/local/netfilter.py",
    "harness/local/netlink.py",
    "harness/local/orders.py",
    "harness/process.py",
    "harness/procfs.py",
    "harness/shape.py",
)
_WHOLE = ("harness/ssh/agent", "harness/vdso")
_PACKAGES = ("harness", "harness/local", "harness/ssh", *_WHOLE)
_LAZY = "from __future__ import annotations\n"
# Reads as many bytes as its first argument says; the agent's own options come after that.
_BEGIN = """
import os, sys
fd = os.memfd_create("winkle-agent")
left = int(sys.argv[1])
while left:
    data = os.read(0, min(left, 65536))
    if not data:
        sys.exit("the agent did not arrive whole")
    left -= os.write(fd, data)
sys.path.insert(0, "/proc/self/fd/%d" % fd)
from harness.ssh.agent.main import main
sys.exit(main())
"""


@functools.cache
def packed() -> bytes:
    """Return the agent as a zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            archive.writestr(f"{package}/__init__.py", "")
        for name, source in sources().items():
            archive.writestr(name, _LAZY + source)
    return file.getvalue()


def sources() -> dict[str, str]:
    """Return what is packed, by path below the project's root, before annotations are made lazy."""
    own = [path for folder in _WHOLE for path in sorted((_ROOT / folder).glob("*.py"))]
    paths = [path for path in own if path.name != "__init__.py"]
    paths += [_ROOT / name for name in _SHARED]
    return {path.relative_to(_ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def argv(python: str, options: str) -> list[str]:
    """Return what starts the agent; its input must begin with `packed()`."""
    # One line without quotes of the shell's kind, so that any user's shell takes it as it is.
    return [python, "-I", "-S", "-c", f"exec({json.dumps(_BEGIN)})", str(len(packed())), options]


def command(python: str, options: str, *, sudo: bool) -> str:
    """Return the same as one line for the shell of a remote user.

    sshd hands a line to the user's shell, so every word is quoted; the only thing that the shell is
    to fill in is what sshd says of the connection, as the last word.
    """
    words = [*(["sudo", "-n"] if sudo else []), *argv(python, options)]
    return f'{shlex.join(words)} "$SSH_CONNECTION"'
