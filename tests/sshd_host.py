"""A host for tests becomes sshd: its /run is its own, as its /proc is.

python sshd_host.py SSHD CONFIG
"""

import os
import sys
from pathlib import Path

from harness.local import namespaces as ns

if __name__ == "__main__":
    ns.mount("tmpfs", "/run", "tmpfs")
    Path("/run/sshd").mkdir()
    sshd, config = sys.argv[1:]
    os.execv(sshd, [sshd, "-D", "-e", "-f", config])  # noqa: S606 - there is to be no shell
