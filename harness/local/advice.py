"""Why this machine refuses a sandbox, and the exact ways out.

Which step failed is found by trying; the settings that are read here only word the advice.
"""

import errno
import sys
from pathlib import Path

from harness.errors import SandboxError
from harness.local.sandbox import StepFailed

DOCKER = "use the Docker backend (--backend docker), or a Linux machine"


def require_linux() -> None:
    """Stop where there are no namespaces.  Raises SandboxError."""
    if sys.platform != "linux":
        raise SandboxError(
            f"the local backend needs Linux (network namespaces), this is {sys.platform}: {DOCKER}"
        )


def explain(failed: StepFailed) -> str:
    """Return the failed step, its error, and what to do about it."""
    name = errno.errorcode.get(failed.error, str(failed.error))
    return f"the sandbox cannot be made: {failed.step}: {name}\n{way_out(failed)}"


def way_out(failed: StepFailed) -> str:
    """Return what to do about a failed step, judged by the machine's settings."""
    denied = failed.error in (errno.EPERM, errno.EACCES)
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone is 0: run with sudo, or set it to 1"
    if failed.error == errno.ENOSPC or _setting("user/max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0 or used up: run with sudo, or raise it"
    if denied and _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor takes the rights from user namespaces (Ubuntu 23.10 and later): run with "
            "sudo, or install an AppArmor profile with `userns,` for this Python "
            f"({sys.executable})"
        )
    if denied and failed.step.startswith("unshare"):
        profile = _seccomp() != "0"
        why = "a container's seccomp profile" if profile else "a lack of CAP_SYS_ADMIN"
        return (
            f"namespaces are forbidden here, probably by {why}: in a container start it with "
            "--cap-add SYS_ADMIN --security-opt seccomp=unconfined, elsewhere run with sudo"
        )
    if failed.error in (errno.EOPNOTSUPP, errno.ENOENT, errno.EINVAL, errno.ENOSYS):
        return f"this kernel lacks what the step needs: {DOCKER}"
    return "the namespace came without rights (a security module?): run with sudo"


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip()
    except OSError:
        return None


def _seccomp() -> str:
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        if line.startswith("Seccomp:"):
            return line.split()[1]
    return "unknown"
