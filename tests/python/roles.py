"""Settings of the nodes of a job in one process, for tests."""

from typing import Dict


def role(name: str, port: int, workers: int = 2, servers: int = 1, **more: str) -> Dict[str, str]:
    """Return those of one that says nothing; `port` is the scheduler node's, or 0 for any."""
    return {
        "DMLC_ROLE": name,
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "BYTESCHEDULER_LOG_LEVEL": "off",
        **more,
    }
