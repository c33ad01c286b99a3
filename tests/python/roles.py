"""Nodes of a job in one process, for tests: their settings, and calls that block in each."""

import threading
from typing import Dict, List, Sequence


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


def in_threads(calls: Sequence[object]) -> List[BaseException]:
    """Run all at the same time; return what was raised."""
    raised: List[BaseException] = []

    def run(call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return raised
