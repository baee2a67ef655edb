"""HTTP client of the anchor service: untrusted responses, limits, retries.

Responsible for addresses, timeouts, retries and the form of requests and responses, with the standard library
alone. Not responsible for the content of a payload: its bytes are returned as they are, and decoding checks
them. Sizes and times of responses are bounded, and a response of another form is an error.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import random
import re
import shlex
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from common import files
from edge_runtime.client import KEY_VARIABLE
from edge_runtime.client.question import Question
from edge_runtime.client.response import (
    FAILURES,
    MAX_TEXT_BYTES,
    Deadline,
    Response,
    connection_error,
    json_object,
    service_error,
)
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, UsageError
from edge_runtime.form import Form
from edge_runtime.text.chat import Prompt, as_messages
from payload import Base, Codec
from payload.decisions import decode_decisions
from payload.errors import FingerprintError, PayloadError
from payload.header import MAX_PAYLOAD_BYTES

BINARY, JSON, EVENTS = "application/octet-stream", "application/json", "text/event-stream"
ANY = "*/*"

BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of bundles, which are names of folders too."""

MAX_EVENTS = 64
CONNECT_SECONDS = 5.0
RETRIED_STATUSES = {408, 429, 500, 502, 503, 504}
"""Statuses of temporary failures."""
NOT_BEGUN = {429, 503}
"""Of these, of a request that was not begun."""
BACKOFF_SECONDS = 0.25
"""Before the second attempt; doubled before each further one."""


class ReceivedPayload(NamedTuple):
    """Bytes of one payload; `delta` where it adds to the payload before it, `last` where none follows."""

    data: bytes
    delta: bool
    last: bool = True


class ServiceDescription(NamedTuple):
    """What a service says of itself.

    identity: of the contract it makes payloads for. steps: of a request that does not set any, and of a full
    run. codecs, selections: that may be asked for.
    """

    identity: str
    steps: int
    total_steps: int
    codecs: tuple[str, ...]
    selections: tuple[str, ...]


@dataclass(frozen=True)
class Client:
    """A service's address, and the limits of a request to it.

    url:      http://host:port or https://..., with the path before /v1 where there is one.
    key:      sent as `Authorization: Bearer`.
    timeout:  seconds in all, from the first attempt to the last byte.
    fields:   of the requests of `ask`, such as fraction, codec or steps.
    attempts: most attempts of one request.
    sleep:    waits between attempts, in seconds.
    stated:   text and code of an error in the form of whoever is asked.
    charged:  whether an answer may cost: then only what was not begun is asked for again.

    Raises UsageError for an invalid address. Its methods raise CloudRefusedError where the service refuses
    the request in its own form, and CloudUnavailableError where it cannot be reached, does not answer in
    time, or something else answers in its place. Redirects are not followed.
    """

    url: str
    key: str | None = None
    timeout: float = 15.0
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)
    attempts: int = 4
    sleep: Callable[[float], None] = time.sleep
    stated: Callable[[object], tuple[str, str]] = service_error
    charged: bool = False

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            fine = (
                parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
            )
            fine = fine and parts.username is None and (parts.port is None or parts.port > 0)
        except ValueError:
            fine = False
        if not fine or not self.url.isprintable() or " " in self.url:
            raise UsageError(
                f"url: expected http://host:port or https://host without a user name, found {self.url!r:.100}"
            )
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key):
            raise UsageError("key: expected printable ASCII characters, found others")
        if not 0 < self.timeout <= 3600:
            raise UsageError(f"timeout: expected above 0 and at most 3600 seconds, found {self.timeout:g}")

    def __str__(self) -> str:
        return self.url

    def identity(self) -> str:
        """Returns the identity of the contract that the service makes payloads for: 64 hex digits."""
        return self.service().identity

    def service(self) -> ServiceDescription:
        """What the service says of itself."""
        with self.request("/v1/contract", JSON) as response:
            data = json_object(response.read_at_most(MAX_TEXT_BYTES))
        identity = data.get("identity")
        if not isinstance(identity, str) or not re.fullmatch(r"[0-9a-f]{64}", identity):
            raise CloudUnavailableError(
                f"{self.url}: expected a contract's identity, found none in its answer"
            )
        steps = [data.get(name) for name in ("steps", "total_steps")]
        codecs, selections = (_texts(data.get(name)) for name in ("codecs", "selections"))
        least, most = (each if isinstance(each, int) and each > 0 else 1 for each in steps)
        return ServiceDescription(identity, min(least, most), most, codecs, selections)

    def bundle_name(self) -> str:
        """The name of the bundle that the service gives to its devices."""
        with self.request("/v1/bundle", JSON) as response:
            name = json_object(response.read_at_most(MAX_TEXT_BYTES)).get("name")
        if not isinstance(name, str) or not BUNDLE_NAME.fullmatch(name):
            raise CloudUnavailableError(f"{self.url}: expected the name of a bundle, found {name!r:.80}")
        return name

    @contextmanager
    def bundle_file(self, name: str, start: int = 0) -> Iterator[Response]:
        """A file of that bundle from byte `start` on, or the whole where its `first_byte` says so."""
        path = f"/v1/bundle/{quote(name)}"
        with self.request(path, BINARY, start=start) as response:
            if response.first_byte not in (0, start):
                raise ValueError("expected the range that was asked for")
            yield response

    def fetch(self, prompt: Prompt, **fields: Any) -> bytes:
        """Returns the bytes of one payload for a question or a conversation.

        fields: further fields of the request, such as fraction, max_bytes or contract; None leaves one out.
        """
        with self.request("/v1/anchors", BINARY, body_of(prompt, fields)) as response:
            return response.read_at_most(MAX_PAYLOAD_BYTES)

    def stream(self, prompt: Prompt, **fields: Any) -> Generator[ReceivedPayload]:
        """Yields payloads as the service makes them; fields as in `fetch`.

        A stream that breaks is not started again: the payloads received so far stay valid.
        """
        with self.request("/v1/anchors/stream", EVENTS, body_of(prompt, fields)) as response:
            for count, (name, data) in enumerate(response.events()):
                if name == "done":
                    return
                if name == "error":
                    text, code = service_error(json_object(data))
                    raise CloudUnavailableError(f"{self.url}: {text}", code)
                if name != "payload" or count >= MAX_EVENTS:
                    raise CloudUnavailableError(f"{self.url}: expected payloads, found another stream")
                yield _received_payload(data)
        raise CloudUnavailableError(f"{self.url}: the stream ended before it was done")

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """The probabilities of a form's options, for the questions asked for, as of `decisions.Decider`."""
        body = {"form": form.schema, "text": text, "asked": list(asked)}
        data = json.dumps(body).encode("ascii")
        with self.request("/v1/decisions", BINARY, data) as response:
            found = response.read_at_most(MAX_TEXT_BYTES)
        try:
            return decode_decisions(found, form.identity, text, form.sizes)
        except PayloadError as error:
            raise CloudUnavailableError(f"{self.url}: {error}") from None

    def ask(self, question: Question) -> None:
        """Hands the payloads for a question to it, as of `cloud.Cloud`.

        Where this device's predictions are not those of a predictive payload it asks for a compact one; both
        requests have the time of one.
        """
        end = time.monotonic() + self.timeout
        try:
            self._ask(question, self.fields)
        except FingerprintError as other:
            why = f"{other}; asked for it"
            if (left := end - time.monotonic()) <= 0:
                raise CloudUnavailableError(f"{self.url}: no time was left to ask again ({why})") from None
            question.report.fell_back = why
            replace(self, timeout=left)._ask(question, {**self.fields, "codec": Codec.COMPACT.label})

    def _ask(self, question: Question, fields: Mapping[str, Any]) -> None:
        fields = {"contract": question.contract, **fields}
        question.report.sent += len(body_of(question.prompt, fields))
        if not question.stream:
            question.take(self.fetch(question.prompt, **fields))
            return
        fraction = fields.pop("fraction", None)
        fractions = None if fraction is None else [fraction]
        base: Base | None = None
        for received in self.stream(question.prompt, fractions=fractions, **fields):
            anchors = question.take(received.data, base if received.delta else None)
            base = Base(received.data, anchors)

    @contextmanager
    def request(
        self, path: str, accept: str, body: bytes | None = None, start: int = 0
    ) -> Iterator[Response]:
        """The response with status 200 of a path behind the address, sent again where that may help: to a
        POST with a body, else to a GET.

        start: of the range asked for; with it the response may be a part, of status 206.
        """
        end = time.monotonic() + self.timeout
        headers = {
            "Accept": accept,
            "Content-Type": JSON,
            "User-Agent": "edge-runtime",
            "Connection": "close",
        }
        if start:
            headers["Range"] = f"bytes={start}-"
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        path = urlsplit(self.url).path.rstrip("/") + path
        response = self._with_retries("GET" if body is None else "POST", path, body, headers, end)
        try:
            yield response
        except FAILURES as error:
            raise CloudUnavailableError(
                f"{self.url}: {connection_error(error, response.timed_out)}"
            ) from error
        finally:
            response.close()

    def _with_retries(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], end: float
    ) -> Response:
        attempt = 1
        while True:
            code: str | None = None
            retry_after: float | None = None
            wait = BACKOFF_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
            try:
                response = self._attempt(method, path, body, headers, end)
                if response.status == 200 or ("Range" in headers and response.status == 206):
                    response.require_type(headers["Accept"])
                    return response
                with response:
                    failure, code = response.error(self.stated)
                if response.status not in (NOT_BEGUN if self.charged else RETRIED_STATUSES):
                    kind = CloudUnavailableError if code is None else CloudRefusedError
                    if code == "contract_mismatch":
                        url = shlex.quote(self.url)
                        failure += f" Get its bundle: python -m edge_runtime.bundle get {url}"
                    raise kind(f"{self.url}: {failure}", code)
                retry_after = response.retry_after()
                if retry_after is not None:
                    # Jitter: clients that were turned away together should not come back together.
                    wait = max(wait, retry_after * random.uniform(1.0, 1.25))
            except FAILURES as error:
                failure = connection_error(error, time.monotonic() >= end)
                if self.charged:
                    raise CloudUnavailableError(f"{self.url}: {failure}") from error
            if attempt >= self.attempts or time.monotonic() + wait >= end:
                tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                raise CloudUnavailableError(f"{self.url}: {failure} ({tries})", code, retry_after)
            self.sleep(wait)
            attempt += 1

    def _attempt(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], end: float
    ) -> Response:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        parts = urlsplit(self.url)
        assert parts.hostname
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=min(CONNECT_SECONDS, left))
        with ExitStack() as stack:
            stack.callback(connection.close)
            connection.connect()
            deadline = Deadline(connection.sock, end)
            stack.callback(deadline.cancel)
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if deadline.expired:
                raise TimeoutError  # a truncated head looks like a complete one
            stack.callback(response.close)
            return Response(response, deadline, stack.pop_all())


def open_client(
    option: str, url: str, key_file: Path | None, timeout: float, key: str | None = None
) -> Client:
    """The service at an address, with the key of a file, or `key` ("" for none), or the environment's.

    Raises UsageError, in the name of the `option` that has the address, where the key would cross a network
    unencrypted.
    """
    if key_file is not None:
        key = files.read_text(key_file, UsageError).strip()
    elif key is None:
        key = os.environ.get(KEY_VARIABLE)
    client = Client(url, key or None, timeout)
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    if client.key is not None and parts.scheme == "http" and not local:
        raise UsageError(
            f"{option}: expected https:// for a key that goes to another host, found {url!r:.100}; "
            "it would cross the network unencrypted"
        )
    return client


def body_of(prompt: Prompt, fields: Mapping[str, Any]) -> bytes:
    """A request's body: UTF-8 JSON, without the fields that are None."""
    asked: dict[str, Any] = {"prompt": prompt}
    if not isinstance(prompt, str):
        asked = {"messages": [message._asdict() for message in as_messages(prompt)]}
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({**asked, **given}).encode("ascii")


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a JSON list; none of anything else."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _received_payload(data: bytes) -> ReceivedPayload:
    fields = json_object(data)
    text, delta, last = fields.get("payload"), fields.get("delta"), fields.get("last", False)
    if not isinstance(text, str) or not isinstance(delta, bool) or not isinstance(last, bool):
        raise ValueError("expected a payload in an event")
    try:
        payload = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("expected base64") from error
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError("expected a smaller payload")
    return ReceivedPayload(payload, delta, last)
