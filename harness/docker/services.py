"""Which services a compose file names, as far as it can be told without the compose command."""

import fnmatch
from pathlib import Path

import yaml


def services(file: Path, pattern: str) -> set[str]:
    """Return the services that a file itself names and that fit a pattern.

    Only the compose command knows what a file includes and extends, so one that it finds there may
    be missing here; a file that cannot be read names none.
    """
    try:
        read = yaml.safe_load(file.read_bytes() if file.is_file() else b"")
    except (OSError, yaml.YAMLError):
        return set()
    named = read.get("services") if isinstance(read, dict) else None
    found = named if isinstance(named, dict) else {}
    return {name for name in map(str, found) if fnmatch.fnmatchcase(name, pattern)}
