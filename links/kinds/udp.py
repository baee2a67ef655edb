"""Frames as UDP datagrams, one each.

Responsible for sockets and addresses. Not responsible for reliability: what the network loses, or answers
with "port unreachable", is lost.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

from edge_runtime.errors import LinkError
from links.datagram import Datagram, Link
from links.profiles import LINK_PROFILES, LinkProfile

UDP_PROFILE = LINK_PROFILES["udp"]
EVERYWHERE, EVERYWHERE_IPV4 = "::", "0.0.0.0"
"""Every interface; the first takes IPv4 too, so that localhost is found as either."""
READ_BYTES = 65536
"""More than any datagram has, so that one too large is seen as such and not cut."""


class UdpLink(Link):
    """UDP between a device and a service.

    host, port: of the service; with `service` those to listen at, host "" for every interface and port 0 for
                any free one (see `address`).
    profile:    of the network below, where that is not the Internet at large: its largest frames and tariff.

    Raises LinkError where the host is unknown or the port taken.
    """

    forgeable = True

    def __init__(
        self, host: str, port: int, *, service: bool = False, profile: LinkProfile = UDP_PROFILE
    ) -> None:
        super().__init__(profile, service=service)
        self._closed = False
        where = f"udp: {host or 'every interface'}, port {port}"
        try:
            everywhere = EVERYWHERE if socket.has_dualstack_ipv6() else EVERYWHERE_IPV4
            family, _, _, _, address = _resolve(host or everywhere, port, socket.AI_PASSIVE if service else 0)
            self._family = family
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:  # a name with a part that is empty or too long
            reason = getattr(error, "strerror", None) or error
            raise LinkError(f"{where}: expected an address, found {reason}") from None
        try:
            if not host and family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if service:
                self._socket.bind(address)
            else:  # only what this address sends is received
                self._socket.connect(address)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise LinkError(f"{where}: {error.strerror or error}") from None

    @property
    def address(self) -> str:
        """This end's own host:port."""
        return _spelled(self._socket.getsockname())

    def sender(self, peer: str | None) -> str | None:
        """The host: a port is free to choose."""
        return None if peer is None else peer.rpartition(":")[0]

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        to = None if peer is None else self._peer(peer)
        try:
            # Without a network, or with a full queue, the frame is lost like any other.
            with suppress(BlockingIOError, ConnectionRefusedError):
                if to is None or not self.service:
                    self._socket.send(frame)
                else:
                    self._socket.sendto(frame, to)
        except OSError as error:
            raise self._error(error) from None

    def _next(self, timeout: float) -> Datagram | None:
        deadline = self.clock() + timeout
        while True:
            if self._closed:
                raise LinkError("udp: the link is closed; open another one")
            try:
                ready, _, _ = select.select([self._socket], [], [], max(0.0, deadline - self.clock()))
                if not ready:
                    return None
                data, address = self._socket.recvfrom(READ_BYTES)
                return Datagram(data, _spelled(address) if self.service else None)
            except (BlockingIOError, ConnectionRefusedError):  # a frame sent before has found no listener
                continue
            except (OSError, ValueError) as error:
                raise self._error(error) from None

    def _peer(self, peer: str) -> tuple[object, ...]:
        """The socket's form of an address as `_spelled` writes it."""
        host, _, port = peer.rpartition(":")
        try:
            if not (host and 0 < int(port) <= 65535):
                raise ValueError
            found = _resolve(host.strip("[]"), int(port), socket.AI_NUMERICHOST, self._family)
        except (OSError, ValueError):
            raise LinkError(f"udp: expected a peer like 192.0.2.1:7777, found {peer!r:.80}") from None
        return found[4]

    def _error(self, error: Exception) -> LinkError:
        if self._closed:
            return LinkError("udp: the link is closed; open another one")
        return LinkError(f"udp: {getattr(error, 'strerror', None) or error}")

    def close(self) -> None:
        self._closed = True
        self._socket.close()


def _resolve(
    host: str, port: int, flags: int, family: int = socket.AF_UNSPEC
) -> tuple[int, int, int, str, tuple[object, ...]]:
    """The first address of a host."""
    return socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, 0, flags)[0]


def _spelled(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    if len(address) == 4 and address[3] and "%" not in str(host):  # a link-local address needs its interface
        host = f"{host}%{address[3]}"
    return f"[{host}]:{port}" if len(address) == 4 else f"{host}:{port}"
