"""Shows the metrics of the engine in this process over HTTP, for Prometheus and `top`."""

import errno
import socket
import socketserver
import threading
from typing import Iterable, Iterator, List, Optional
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from bytescheduler._metrics import table
from bytescheduler._metrics.addresses import MOST_PORTS, Measure
from bytescheduler._native import Metric, version
from bytescheduler.errors import Error

__all__ = ["Exporter"]

_POLL_S = 0.2  # how soon the server notices that it is to end


class _Collector(Collector):
    """Asks the engine at each request, until it is stopped."""

    def __init__(self, measure: Measure, role: str, rank: Optional[int]) -> None:
        self._measure: Optional[Measure] = measure
        self._role = role
        self._rank = "" if rank is None else str(rank)
        self._lock = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """Wait for the requests under way; later ones do not ask the engine."""
        self._stopped = True  # requests that wait for the lock see it
        with self._lock:
            self._measure = None

    def _ask(self) -> Optional[List[Metric]]:
        with self._lock:
            if self._stopped or self._measure is None:
                return None
            try:
                return self._measure()
            except Error:
                return None

    def collect(self) -> Iterator[Family]:
        metrics = self._ask()
        values = {metric.name: metric.value for metric in metrics or () if metric.of is None}
        if values.get("ready") and "rank" in values:
            self._rank = str(int(values["rank"]))
        info = GaugeMetricFamily(
            table.INFO, "The process of these metrics.", labels=("role", "rank", "version")
        )
        info.add_metric((self._role, self._rank, version()), 1)
        yield info
        answers = GaugeMetricFamily(
            table.ANSWERS, "1 if the engine returned its metrics, else 0.", labels=("role", "rank")
        )
        answers.add_metric((self._role, self._rank), float(metrics is not None))
        yield answers
        yield from self._families(metrics or ())

    def _families(self, metrics: Iterable[Metric]) -> Iterator[Family]:
        families = {}
        for metric in metrics:
            row = table.find(self._role, metric.name)
            if row is None:
                continue
            if row.name not in families:
                kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
                families[row.name] = kind(row.name, row.sentence, labels=row.labels)
            rank = (self._rank,) if "rank" in row.labels else ()
            peer = () if metric.of is None else (str(metric.of),)
            families[row.name].add_metric((*rank, *peer), metric.value)
        yield from families.values()


class _Handler(WSGIRequestHandler):
    timeout = 5  # seconds for a client that connects and sends nothing

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: stderr belongs to the training."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: a client that hangs up before the response is no matter of the training."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _listen(host: str, port: int) -> _Server:
    kind = _Server6 if ":" in host else _Server
    ports = [port] if port == 0 else range(port, min(port + MOST_PORTS, 65536))
    for candidate in ports:
        try:
            return kind((host, candidate), _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"ports {ports[0]} to {ports[-1]} are all taken")


class Exporter:
    """Shows what `measure` returns until it is closed.

    Parameters
    ----------
    measure : callable
        Returns the engine's metrics; called on threads of the exporter, one at a time.
    role : {"worker", "server", "scheduler"}
        The role of this process.
    rank : int, optional
        The rank, if it is known; else it is the metric "rank" once "ready" is not 0.
    host, port : str, int
        Where to listen: the first free port from there on, or any if it is 0.

    Raises
    ------
    OSError
        It cannot listen there.
    """

    def __init__(
        self, measure: Measure, role: str, rank: Optional[int], host: str, port: int
    ) -> None:
        self._collector = _Collector(measure, role, rank)
        registry = CollectorRegistry()
        registry.register(self._collector)
        ProcessCollector(registry=registry)
        self._server = _listen(host, port)
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="bs-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = str(self._server.server_name)
        return f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Ask the engine nothing more, and stop listening.  Blocks for about a second at most."""
        self._collector.stop()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Leave the port to the parent: for a forked child, which has none of the threads."""
        self._server.socket.close()
