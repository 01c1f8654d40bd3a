"""Running a function of a test inside a sandbox, and getting back what it returned.

    python -m tests.inside MODULE FUNCTION

The function must be at the top of an importable module, take nothing, and return what JSON holds.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from harness.local import sandbox


def inside(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a fresh sandbox.  Raises AssertionError with its trace."""
    with tempfile.TemporaryFile() as said:
        module, name = function.__module__, function.__name__
        left = sandbox.launch("tests.inside", module, name, stdout=said.fileno())
        said.seek(0)
        text = said.read().decode()
    assert left.failed is None, left.failed
    assert left.code == 0, text
    return json.loads(text)


def _main() -> int:
    try:
        returned = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
    except BaseException:  # noqa: BLE001 - it is told where the test runs
        sys.stdout.write(traceback.format_exc())
        return 1
    sys.stdout.write(json.dumps(returned))
    return 0


if __name__ == "__main__":
    assert "WINKLE_LIFELINE" in os.environ, "started by inside()"
    sys.exit(sandbox.run_helper(_main, *sandbox.descriptors()))
