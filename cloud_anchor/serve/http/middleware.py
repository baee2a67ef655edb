"""ASGI middleware around every request: id, API key, size and time of the body, total time, metrics, log.

Responsible for the limits of a request and the error responses for them. Not responsible for its content.

A body is read here, as a whole and within its limits, before the application sees the request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.accounts import REQUEST_ID, SCOPE, Account, account_of, request_id
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.http.telemetry import Metrics
from cloud_anchor.serve.settings import Limits
from edge_runtime.endpoint.presence import foreign_header

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


SEND_SECONDS = 10.0
"""Seconds, beyond the deadline, that a client may take to read its response."""

PATHS = (
    "/v1/anchors /v1/anchors/stream /v1/decisions /v1/chat/completions /v1/models /v1/contract /v1/bundle "
    "/healthz /readyz /metrics /openapi.json / /page.css /page.js /page.svg /sw.js /device /v1/page /v1/trace"
).split()
KEYED_PREFIX = "/v1/"


class RequestMiddleware:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, keys: ApiKeys, limits: Limits) -> None:
        self.app = app
        self.metrics = metrics
        self.keys = keys
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        folders = ("/v1/bundle", "/device")
        path = next((each for each in folders if scope["path"].startswith(f"{each}/")), scope["path"])
        path = path if path in PATHS else "other"
        headers = {name.lower(): value for name, value in scope["headers"]}
        account = scope[SCOPE] = Account(request_id(headers.get(REQUEST_ID.lower().encode())))
        identity = (REQUEST_ID.lower().encode(), account.id.encode())

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), identity]}
            account.sent += len(message.get("body", b""))
            await send(message)

        try:
            async with asyncio.timeout(self.limits.body_seconds + self.limits.deadline + SEND_SECONDS):
                await self._handle(scope, headers, receive, observed)
        except TimeoutError:
            if account.status == 499:  # which stands for no response: the client has disconnected, or else
                raise  # the application has hung: the server responds 500 and logs it
            # Otherwise the client does not read: returning before the last message closes the connection.
        finally:
            self.metrics.requests.labels(path, str(account.status)).inc()
            self.metrics.seconds.labels(path).observe(account.seconds)
            account.write(scope["method"], path)

    async def _handle(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        try:
            self._identify(account_of(scope), scope, headers)
            body = await self._body(headers, receive)
        except ServiceError as error:
            self.metrics.refusals.labels(error.code).inc()
            await send_error(error, send)
            return
        except asyncio.IncompleteReadError:
            self.metrics.left.inc()
            return
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    def _identify(self, account: Account, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Say in the account who asks; raises ServiceError: 401 where the key is unknown, without keys 403
        where a page of others may have sent the request.
        """
        if not len(self.keys):
            named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
            if not self.keys.everyone and (found := foreign_header(named)) is not None:
                expected = "a request to an address or localhost, from no page of another origin"
                remedy = "Use the service's address, or start it with keys."
                raise ServiceError(403, "foreign_request", expected, found, remedy)
            account.client = scope["client"][0] if scope.get("client") else ""
            return
        if not scope["path"].startswith(KEYED_PREFIX):
            return
        authorization = headers.get(b"authorization")
        text = None if authorization is None else authorization.decode("latin-1")
        name = self.keys.name(text)
        if name is None:
            expected = "a known key in the header Authorization: Bearer KEY"
            found = "no key" if text is None else "another one"
            remedy = "Send one of the service's keys."
            raise ServiceError(401, "unauthorized", expected, found, remedy)
        account.client = account.key = name

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body; raises ServiceError, or IncompleteReadError where the client disconnects."""
        most = self.limits.body_bytes
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most, f"{int(declared)} announced")
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise asyncio.IncompleteReadError(b"", None)
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _too_large(most, "more")
                    more = message.get("more_body", False)
        except TimeoutError:
            expected = f"the whole body within {self.limits.body_seconds:g} s"
            found = f"{size} bytes of it by then"
            raise ServiceError(408, "body_too_slow", expected, found, "Send it at once.") from None
        return b"".join(parts)


def _too_large(most: int, found: str) -> ServiceError:
    remedy = "Send a shorter prompt or conversation."
    return ServiceError(413, "body_too_large", f"a body of at most {most} bytes", found, remedy)


async def send_error(error: ServiceError, send: Send) -> None:
    body = encode_json(error.body())
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} | error.headers()
    raw = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})
