"""Starts one PostgreSQL server on a data folder, as a script: makes the folder's content if needed.

PostgreSQL refuses to run as uid 0, which is what a sandbox's processes are.  A nested user
namespace maps `nobody` to whoever calls: the files keep their owner, and the server is content.  It
needs no right that making the sandbox did not need.

What `initdb` makes becomes the data folder by one rename, so a kill half-way leaves no half folder.

    python -I -S _postgres_server.py INITDB POSTGRES FOLDER [ARGUMENT OF POSTGRES]...
"""

import ctypes
import os
import shutil
import subprocess
import sys

_CLONE_NEWUSER = 0x10000000
_NOBODY = 65534
_ACCESS = """
local all all trust
host all all samenet trust
"""


def become_nobody() -> None:
    """Look like an ordinary user from here on, with the file rights of the caller.

    Raises OSError where nested user namespaces are forbidden.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER):
        code = ctypes.get_errno()
        raise OSError(code, f"a user namespace for PostgreSQL: {os.strerror(code)}")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_NOBODY} {uid} 1"),
        ("gid_map", f"{_NOBODY} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - starts in 10 ms without pathlib
            file.write(text)


def make_folder(initdb: str, folder: str) -> None:
    """Make a data folder, whole or not at all.  Raises CalledProcessError."""
    half = f"{folder}.half"
    shutil.rmtree(half, ignore_errors=True)
    settings = ["--username=postgres", "--encoding=UTF8", "--no-locale", "--auth=trust"]
    speed = ["--no-sync", "--no-instructions"]  # no disk is lost here before the first start
    subprocess.run([initdb, f"--pgdata={half}", *settings, *speed], check=True)
    with open(f"{half}/pg_hba.conf", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        file.write(_ACCESS)
    os.rename(half, folder)  # noqa: PTH104 - as above


def main(initdb: str, postgres: str, folder: str, *arguments: str) -> None:
    """Become the server."""
    if os.geteuid() == 0:
        become_nobody()
    if not os.path.exists(folder):  # noqa: PTH110 - as above
        make_folder(initdb, folder)
    os.execv(postgres, [postgres, "-D", folder, *arguments])  # noqa: S606 - that is its task


if __name__ == "__main__":
    main(*sys.argv[1:])
