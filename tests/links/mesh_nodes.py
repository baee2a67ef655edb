"""Meshtastic nodes on this machine: the protobuf stream that firmware speaks, and the air between the nodes.

Written from the library's own protobuf classes. A node refuses what firmware refuses: a packet whose `Data`
with its bit field, header and encryption is larger than a LoRa packet.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from meshtastic.protobuf import config_pb2, mesh_pb2, portnums_pb2

START = b"\x94\xc3"
EVERYBODY = 0xFFFFFFFF
LORA_LARGEST, HEADER, PKC = 255, 16, 12


class Air:
    """What all nodes hear. packets: sizes on the air, header and encryption included."""

    def __init__(self) -> None:
        self.nodes: list[MeshNode] = []
        self.packets: list[int] = []
        self.copies: Callable[[int], int] = lambda number: 1
        """How often the packet of this number arrives."""

    def carry(self, sender: MeshNode, packet: mesh_pb2.MeshPacket, size: int) -> None:
        copies = self.copies(len(self.packets))
        self.packets.append(size)
        for node in self.nodes:
            if node is not sender and packet.to in (EVERYBODY, node.number):
                for _ in range(copies):
                    node.tell(packet=packet)


class MeshNode:
    """A node with one client: over TCP, or over a pseudo terminal where `serial`."""

    def __init__(self, air: Air, number: int, *, serial: bool = False) -> None:
        self.air, self.number = air, number
        air.nodes.append(self)
        self._write: Callable[[bytes], Any] = lambda data: None
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self.refuses: str | None = None
        if serial:
            import tty

            master, slave = os.openpty()
            tty.setraw(slave)
            self.path, self.port = os.ttyname(slave), 0
            self._fds = (master, slave)
            self._start(self._serve, lambda: os.read(master, 512), lambda data: os.write(master, data))
        else:
            self._fds = ()
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
            self._start(self._accept)

    @staticmethod
    def _start(work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._connection = self._listener.accept()[0]
                self._serve(lambda c=connection: c.recv(512), connection.sendall)

    def _serve(self, read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
        self._write = write
        buffer = b""
        with suppress(OSError):
            while data := read():
                buffer += data
                while (start := buffer.find(START)) >= 0 and len(buffer) >= start + 4:
                    size = int.from_bytes(buffer[start + 2 : start + 4], "big")
                    if len(buffer) < start + 4 + size:
                        break
                    message = mesh_pb2.ToRadio.FromString(buffer[start + 4 : start + 4 + size])
                    buffer = buffer[start + 4 + size :]
                    self._told(message)

    def _told(self, message: mesh_pb2.ToRadio) -> None:
        if message.want_config_id:
            self.tell(my_info=mesh_pb2.MyNodeInfo(my_node_num=self.number))
            self.tell(node_info=mesh_pb2.NodeInfo(num=self.number))
            lora = config_pb2.Config.LoRaConfig(use_preset=True, hop_limit=3, tx_enabled=True)
            self.tell(config=config_pb2.Config(lora=lora))
            from meshtastic.protobuf import channel_pb2

            self.tell(channel=channel_pb2.Channel(index=0, role=channel_pb2.Channel.Role.PRIMARY))
            self.tell(config_complete_id=message.want_config_id)
        elif message.HasField("packet"):
            status = mesh_pb2.QueueStatus(free=15, maxlen=16, mesh_packet_id=message.packet.id)
            self.tell(queueStatus=status)
            self._send(message.packet)

    def _send(self, packet: mesh_pb2.MeshPacket) -> None:
        packet = mesh_pb2.MeshPacket.FromString(packet.SerializeToString())
        setattr(packet, "from", self.number)
        packet.decoded.bitfield = 0
        size = packet.decoded.ByteSize() + HEADER + (0 if packet.to == EVERYBODY else PKC)
        if size > LORA_LARGEST or self.refuses:
            self.nak(packet.id, self.refuses or "TOO_LARGE", self.number)
        else:
            self.air.carry(self, packet, size)

    def nak(self, request: int, reason: str, sender: int) -> None:
        """Tell the client that a packet of its own failed, as this node or another one says."""
        routing = mesh_pb2.Routing(error_reason=mesh_pb2.Routing.Error.Value(reason))
        data = mesh_pb2.Data(
            portnum=portnums_pb2.PortNum.ROUTING_APP, payload=routing.SerializeToString(), request_id=request
        )
        packet = mesh_pb2.MeshPacket(to=self.number, decoded=data)
        setattr(packet, "from", sender)
        self.tell(packet=packet)

    def tell(self, **fields: Any) -> None:
        """Send a FromRadio message to the client."""
        data = mesh_pb2.FromRadio(**fields).SerializeToString()
        with self._lock, suppress(OSError):
            self._write(START + len(data).to_bytes(2, "big") + data)

    def close(self) -> None:
        """Switch the radio off."""
        if self._fds:
            for fd in self._fds:
                os.close(fd)
            return
        self._listener.close()
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection.close()
