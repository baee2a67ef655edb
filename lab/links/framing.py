"""Bytes that protocols add to a message: TCP/IP or UDP/IP, TLS 1.3 or DTLS 1.3, HTTP or CoAP.

Responsible for the size of each header, derived field by field from its specification, and for the messages
of a handshake. Not responsible for sending them (see `transport`) or for a link's own figures (see
`networks`).

IPv4 (RFC 791) 20, UDP (RFC 768) 8, TCP (RFC 9293) 20 and the timestamps of every segment (RFC 7323) 12.
"""

from __future__ import annotations

from dataclasses import dataclass

IPV4, UDP, TCP, TIMESTAMPS = 20, 8, 20, 12
SYN_OPTIONS = 4 + 2 + 10 + 1 + 3
"""Of a SYN: segment size, SACK permitted, timestamps, filler, window scale (RFC 9293, 2018, 7323)."""

TLS_RECORD = 5 + 1 + 16
"""Header, content type inside, tag of AES-GCM or ChaCha20-Poly1305 (RFC 8446, section 5.2)."""
TLS_LARGEST = 1 << 14
"""Most bytes of a record's plaintext (RFC 8446, section 5.1)."""

CLIENT_HELLO = 5 + 512
"""A record of a hello that is padded to 512 bytes (RFC 7685), as OpenSSL and BoringSSL send it. A
post-quantum key share takes about 1,200 bytes more, and as many back."""

CERTIFICATES = 2200
"""Bytes of a server's certificate and its intermediate's, DER: a chain of two with ECDSA keys and signed
certificate timestamps, as public authorities issue them, takes 2,000 to 2,500."""

DTLS_RECORD = 1 + 1 + 2 + 1 + 8
"""Unified header, connection id of a byte, sequence number of two, content type inside, tag of AES-128-CCM-8
(RFC 9147, section 4; RFC 9146). The session is kept: a connection id outlives addresses."""
COAP_HEADER, COAP_TOKEN, COAP_MARKER = 4, 2, 1

HTTP = "http"
HOST = "anchors.example.com"


def tls_records(size: int) -> int:
    """Bytes of `size` bytes of plaintext as TLS 1.3 records."""
    return size + TLS_RECORD * max(1, -(-size // TLS_LARGEST))


def server_flight(certificates: int = CERTIFICATES, chain: int = 2) -> int:
    """Bytes of all that a server sends before its data (RFC 8446, section 2): ServerHello, the change of
    cipher that middleboxes want, then encrypted extensions, certificates, their signature, finished. Tickets
    for later connections, which may follow, are not counted.
    """
    hello = 5 + 4 + 2 + 32 + 1 + 32 + 2 + 1 + 2 + (4 + 2) + (4 + 2 + 2 + 32)
    change = 5 + 1
    extensions = 4 + 2 + (4 + 2 + 1 + len("http/1.1"))
    certificate = 4 + 1 + 3 + certificates + chain * (3 + 2)
    signature = 4 + 2 + 2 + 71  # ECDSA P-256, DER: 70 to 72
    finished = 4 + 32
    return hello + change + sum(tls_records(part) for part in (extensions, certificate, signature, finished))


def client_finished() -> int:
    """Bytes of the client's change of cipher and Finished."""
    return 5 + 1 + tls_records(4 + 32)


def http_request(body: int, accept: str, host: str = HOST, path: str = "/v1/anchors") -> int:
    """Bytes of a POST of HTTP/1.1 as the device's client sends it (`edge_runtime.client`), body included."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\nContent-Length: {body}\r\n"
        f"Accept: {accept}\r\nContent-Type: application/json\r\nUser-Agent: edge-runtime\r\n"
        "Connection: close\r\n\r\n"
    )
    return len(head) + body


def http_response(body: int | None, kind: str) -> int:
    """Bytes of a response of HTTP/1.1; body: None for one in chunks, which follow (see `chunk`)."""
    length = "Transfer-Encoding: chunked" if body is None else f"Content-Length: {body}"
    head = (
        "HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
        f"content-type: {kind}\r\n{length}\r\nConnection: close\r\n\r\n"
    )
    return len(head) + (body or 0)


def chunk(size: int) -> int:
    """Bytes of a chunk (RFC 9112, section 7.1); of size 0 it is the last."""
    return len(f"{size:x}\r\n\r\n") + size


@dataclass(frozen=True)
class Framing:
    """What a link's protocols add.

    packet:    bytes before the payload of every packet.
    ack:       of a packet that only acknowledges; 0 where the link itself does.
    handshake: bytes of the messages before the first request, of the device and the cloud in turn, which
               acknowledge each other; after a last one of the device the request follows at once.
    kind:      "http", "coap" or "message".
    """

    kind: str
    packet: int
    ack: int
    handshake: tuple[int, ...] = ()

    def acknowledgement(self, kind: str) -> int:
        """Bytes of a packet that only acknowledges a request, a response or a part of a streamed one.

        CoAP's response is the acknowledgement of its request, and needs none (RFC 7252, section 5.2.1).
        """
        return self.ack if self.kind != "coap" or kind == "part" else 0

    def request(self, body: int, accept: str) -> int:
        """Bytes of a request with this body."""
        if self.kind == HTTP:
            return tls_records(http_request(body, accept))
        if self.kind == "coap":  # path "a"
            return body + COAP_HEADER + COAP_TOKEN + 2 + COAP_MARKER
        return body

    def response(self, body: int, accept: str) -> int:
        """Bytes of a whole response with this body."""
        if self.kind == HTTP:
            return tls_records(http_response(body, accept))
        if self.kind == "coap":
            return body + COAP_HEADER + COAP_TOKEN + COAP_MARKER
        return body

    def stream_part(self, body: int, accept: str, *, first: bool, last: bool) -> int:
        """Bytes of a part of a response that is streamed: the head with the first, the end with the last."""
        if self.kind == HTTP:
            head = http_response(None, accept) if first else 0
            return tls_records(head + chunk(body) + (chunk(0) if last else 0))
        return self.response(body, accept)  # CoAP: a notification of Observe (RFC 7641); a message of its own


HTTPS = Framing(
    HTTP,
    IPV4 + TCP + TIMESTAMPS,
    IPV4 + TCP + TIMESTAMPS,
    (SYN_OPTIONS - TIMESTAMPS, SYN_OPTIONS - TIMESTAMPS, CLIENT_HELLO, server_flight(), client_finished()),
)
"""HTTP/1.1 over TLS 1.3 over TCP; a connection of its own. The SYN's acknowledgement goes with the
ClientHello."""

COAP = Framing("coap", IPV4 + UDP + DTLS_RECORD, IPV4 + UDP + DTLS_RECORD + COAP_HEADER)
"""CoAP (RFC 7252) over DTLS 1.3 over UDP, the session kept. An acknowledgement is an empty message."""

MESSAGE = Framing("message", 0, 0)
"""Messages of a network without IP: the network carries the address and reports the delivery."""
