"""What `bytescheduler top` shows of a job that runs."""

import json
from typing import Any, Dict

from click_runner import runner

from bytescheduler import cli

__all__ = ["look_at"]


def look_at(port: int, nodes: int) -> Dict[str, Any]:
    """Look once all of that many workers and servers answer."""
    look = ["top", "--once", "--json", "--interval", "2", str(port)]
    for _ in range(10):  # on a busy machine one may not answer in time
        result = runner().invoke(cli._cli, look)
        found: Dict[str, Any] = json.loads(result.stdout or "{}")
        rows = [*found.get("workers", []), *found.get("servers", [])]
        if len(rows) == nodes and all(row["answers"] for row in rows):
            break
    assert result.exit_code == 0, result.stderr
    return found
