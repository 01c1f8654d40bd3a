"""A host for tests becomes sshd: its /run is its own, as its /proc is.

python sshd_host.py SSHD CONFIG

What lies in the folder `etc` beside the configuration stands in place of the files in /etc.
"""

import os
import sys
from pathlib import Path

from harness.local import namespaces as ns

MS_BIND = 4096

if __name__ == "__main__":
    ns.mount("tmpfs", "/run", "tmpfs")
    Path("/run/sshd").mkdir()
    sshd, config = sys.argv[1:]
    for file in Path(config).with_name("etc").glob("*"):
        ns.mount(str(file), f"/etc/{file.name}", None, MS_BIND)
    os.execv(sshd, [sshd, "-D", "-e", "-f", config])  # noqa: S606 - there is to be no shell
