"""A stock worker made of bytes, by PROTOCOL.md, for what MXNet's own never sends."""

from typing import Dict, List, Union

import zmq

UNSET = 2**31 - 1
ADD_NODE, BARRIER, ACK, HEARTBEAT = 2, 3, 4, 5
SYNC_MODE = 3
WORKER = 1
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


class StockPeer:
    """The only worker of a job with one server, in its dist_sync store; request 0 is behind it."""

    def __init__(self, root_port: int, early_heartbeats: int = 0) -> None:
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._receiver = self._context.socket(zmq.ROUTER)
        port = self._receiver.bind_to_random_port("tcp://127.0.0.1")
        anonymous = self._connect(root_port, b"")
        own: Dict[int, Field] = {1: WORKER, 2: UNSET, 3: b"127.0.0.1", 4: port, 5: 0, 10: 0}
        for number in range(early_heartbeats):
            anonymous.send(heartbeat(own, number))
        control = encode({1: ADD_NODE, 2: encode(own)})
        anonymous.send(encode({1: UNSET, 3: control, 4: 0, 5: 0, 6: 0, 8: 0, 10: UNSET}))
        _, meta, _ = self.receive()
        nodes = [decode(node) for node in decode(bytes(meta[3][0]))[2] if isinstance(node, bytes)]
        ports = {node[2][0]: node[4][0] for node in nodes}
        assert set(ports) == {1, 8, 9}
        anonymous.close()
        self.own: Dict[int, Field] = {**own, 2: 9}
        self.root = self._connect(root_port, b"ps9")
        self.server = self._connect(int(ports[8]), b"ps9")
        self.barrier()
        self.receive()
        command = {1: SYNC_MODE, 4: 1, 5: 0, 6: 1, 7: 0, 8: 0, 10: 0, 12: 0, 13: 0}
        self.server.send(encode(command))
        self.receive()

    def __enter__(self) -> "StockPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy()

    def barrier(self) -> None:
        """Send a request for the barrier of everyone, which is its control message number 1."""
        control = encode({1: BARRIER, 3: 7})
        self.root.send(encode({1: UNSET, 3: control, 4: 1, 5: 0, 6: 0, 7: 0, 8: 1, 10: 0}))

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
