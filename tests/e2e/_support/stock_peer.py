"""Stock workers made of bytes, by PROTOCOL.md: what MXNet's own never send, and many of them."""

import contextlib
import os
from typing import Dict, Iterator, List, Union

import zmq

UNSET = 2**31 - 1
ADD_NODE, BARRIER, ACK, HEARTBEAT = 2, 3, 4, 5
STOP_SERVER, SYNC_MODE = 2, 3
WORKER = 1
EVERYONE = 7
Field = Union[int, bytes]
Fields = Dict[int, List[Field]]
PATIENCE_MS = 60_000


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encode(fields: "Dict[int, Field]") -> bytes:
    out = b""
    for number, value in sorted(fields.items()):
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(value)
    return out


def decode(data: bytes) -> Fields:
    fields: Fields = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        value: Field = number()
        if tag & 7 == 2:
            assert isinstance(value, int)
            value, at = data[at : at + value], at + value
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def heartbeat(node: "Dict[int, Field]", number: int) -> bytes:
    control = encode({1: HEARTBEAT, 2: encode(node)})
    unset: Dict[int, Field] = {4: 0, 5: 0, 6: 0, 7: 0, 12: 0, 13: 0}
    return encode({**unset, 1: UNSET, 3: control, 8: number, 10: UNSET})


def own_host() -> str:
    """Return a loopback address to which only nodes of this process's jobs connect.

    Nodes of other jobs go on connecting to ports where their peers were.  A stock node hears one
    connection of an identity, so it would never hear its own scheduler node behind another one.
    """
    process = os.getpid()
    return f"127.{64 + (process >> 16)}.{process >> 8 & 255}.{process & 255}"


class StockPeer:
    """A worker of a job with one server, in its dist_sync store, after `meet` and `begin`."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", root_port: int) -> None:
        self._context = context
        self._receiver = context.socket(zmq.ROUTER)
        self._root_port = root_port
        self.host = own_host()
        port = self._receiver.bind_to_random_port(f"tcp://{self.host}")
        host = self.host.encode()
        self.own: Dict[int, Field] = {1: WORKER, 2: UNSET, 3: host, 4: port, 5: 0, 10: 0}
        self.root = self._connect(root_port, b"")

    def register(self, early_heartbeats: int = 0) -> None:
        """Ask the scheduler node for a place."""
        for number in range(early_heartbeats):
            self.root.send(heartbeat(self.own, number))
        control = encode({1: ADD_NODE, 2: encode(self.own)})
        self.root.send(encode({1: UNSET, 3: control, 4: 0, 5: 0, 6: 0, 8: 0, 10: UNSET}))

    def meet(self, workers: int) -> None:
        """Take the list of all nodes, and ask to go on with them."""
        _, meta, _ = self.receive()
        control = decode(bytes(meta[3][0]))
        assert control[1] == [ADD_NODE]
        nodes = [decode(bytes(node)) for node in control[2]]
        ids = {node[4][0]: int(node[2][0]) for node in nodes}
        assert sorted(ids.values()) == [1, 8, *range(9, 9 + 2 * workers, 2)]
        self.id = ids[self.own[4]]
        self.own[2] = self.id
        identity = b"ps%d" % self.id
        self.root.close()
        self.root = self._connect(self._root_port, identity)
        self.server = self._connect(next(int(port) for port in ids if ids[port] == 8), identity)
        self.barrier(1)

    def begin(self) -> None:
        """Wait until all have met; one of them asks the server for rounds."""
        self.receive()
        if self.id == 9:
            self.command(SYNC_MODE, 0)

    def barrier(self, number: int) -> None:
        """Send a request for the barrier of everyone."""
        control = encode({1: BARRIER, 3: EVERYONE})
        self.root.send(encode({1: UNSET, 3: control, 4: 1, 5: 0, 6: 0, 7: 0, 8: number, 10: 0}))

    def command(self, head: int, number: int) -> None:
        """Have the server do something."""
        command = {1: head, 4: 1, 5: 0, 6: 1, 7: 0, 8: number, 10: 0, 12: 0, 13: 0}
        self.server.send(encode(command))
        self.receive()

    def ask(self, number: int, frames: "List[bytes]", push: bool) -> None:
        """Send a request for values of float32."""
        meta = {1: 0, 4: 1, 5: int(push), 6: 0, 7: 0, 8: number, 10: 0, 12: int(not push), 13: 0}
        self.server.send_multipart([encode(meta), *frames])

    def receive(self) -> "tuple[bytes, Fields, List[bytes]]":
        """Return sender, meta data and frames of what comes next."""
        assert self._receiver.poll(PATIENCE_MS), "nothing came"
        sender, meta, *frames = self._receiver.recv_multipart()
        return sender, decode(meta), frames

    def _connect(self, port: int, identity: bytes) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        if identity:
            socket.setsockopt(zmq.IDENTITY, identity)
        socket.connect(f"tcp://127.0.0.1:{port}")
        return socket


@contextlib.contextmanager
def stock_peers(
    root_port: int, count: int, early_heartbeats: int = 0
) -> "Iterator[List[StockPeer]]":
    """Make all workers of a job; the first request of each is number 1.  By rank."""
    context = zmq.Context()
    context.setsockopt(zmq.LINGER, 0)
    try:
        peers = [StockPeer(context, root_port) for _ in range(count)]
        for peer in peers:
            peer.register(early_heartbeats)
        for peer in peers:
            peer.meet(count)
        for peer in peers:
            peer.begin()
        yield sorted(peers, key=lambda peer: peer.id)
    finally:
        context.destroy()
