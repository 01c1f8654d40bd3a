"""The published JSON schemas of what the harness reads and writes.

They are generated from the types that do the reading and writing, so they cannot drift from them;
`docs/reference` holds them as files for programs that want to check before they send.
"""

import json
from pathlib import Path
from typing import Any


def published() -> dict[str, dict[str, Any]]:
    """Return every published schema by its file name."""
    from harness import protocol, results, runfile, suite
    from harness.ssh import inventory

    return {
        "inventory.schema.json": inventory.inventory_schema(),
        "results.schema.json": results.schema(),
        "run.schema.json": runfile.run_schema(),
        "suite.schema.json": suite.suite_schema(),
        "worker-protocol.schema.json": protocol.schema(),
    }


def write(folder: Path) -> list[Path]:
    """Write every schema to a folder, the same bytes for the same types.  Raises OSError."""
    written = []
    for name, schema in published().items():
        path = folder / name
        path.write_text(json.dumps(schema, indent=2, sort_keys=True) + "\n", "utf-8")
        written.append(path)
    return written
