"""`python -m links.gateway`: answers questions over a link, with an anchor service or a chat server.

Responsible for the command line and its threads. Not responsible for what is answered (see `answering`) or
for links (see `links`).
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common.cli import INTERRUPTED, option, run_options
from common.files import locked
from edge_runtime.client import KEY_VARIABLE
from edge_runtime.client.client import open_client
from edge_runtime.errors import UsageError
from links.profiles import FREE

log = logging.getLogger("links.gateway")

EPILOG = """examples:
  # the shipped pair: the service, the gateway beside it, and a device
  python -m cloud_anchor.serve --model tiny --port 8080
  python -m links.gateway --link udp-listen:7777 --service http://localhost:8080 --edge testbed-qwen
  python -m links.ask --link udp:localhost:7777 "What is the capital of Japan?"
  # any model of Ollama, llama.cpp or vLLM in the service's place
  python -m links.gateway --link meshtastic-listen:/dev/ttyUSB0 --edge bundles/smollm2 \\
      --backend openai:http://localhost:11434/v1 --model qwen2.5:7b

exit codes: 0 ended by SIGTERM, 2 usage, 4 bad or missing model, 5 the service or the link has failed,
130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class _GatewayArguments:
    """Answer questions that come as short frames over a link, with an anchor service or any chat server.

    A repeated question gets the same answer again, without another run of the service.
    """

    link: str = option("", "the link, such as udp-listen:PORT", metavar="ADDRESS", required=True)
    service: str | None = option(
        None, "the anchor service's address", metavar="URL", either="source", required=True
    )
    backend: str | None = option(
        None,
        "in its place a server of OpenAI's chat protocol, such as openai:http://localhost:11434/v1",
        metavar="URL",
        either="source",
        required=True,
    )
    model: str | None = option(None, "that server's name of the model, such as qwen2.5:7b", metavar="NAME")
    key_file: Path | None = option(None, f"file with the key of either; default: ${KEY_VARIABLE}, else none")
    edge: str | None = option(
        None,
        "folder or name of the bundle that the devices have (default: the one installed, or the one that "
        "comes with this package)",
        metavar="BUNDLE",
    )
    forms: Path | None = option(
        None, "folder of JSON Schemas (*.json), whose questions are answered too", metavar="DIR"
    )
    threads: int | None = option(None, "of the edge model, which reads questions")
    timeout: float = option(60.0, "for an answer of the service (default 60)", metavar="S")
    seals: list[Path] | None = option(
        None,
        "a device's NAME.gateway.seal; once for each device, and only these are answered (see links.seal)",
        flags=("--seal",),
        action="append",
    )
    predictive_from_anyone: bool = option(
        False,
        "read questions that are coded with the edge model, a pass for each token, without a seal too: for "
        "links with authentication of their own (with --backend they always are)",
    )
    confidence: bool = option(
        True,
        "tell the devices how sure the cloud is of what it sends, 2 bits a token (default)",
        action=argparse.BooleanOptionalAction,
    )
    bundle_port: int | None = option(None, "give the bundle to the local network there", metavar="PORT")
    spend_peer: float = option(1.0, "most money of frames to one peer in a day (default 1)", metavar="M")
    spend_day: float = option(10.0, "the same to all peers (default 10)", metavar="M")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options(
        "links.gateway",
        _run,
        _GatewayArguments,
        argv,
        EPILOG,
        usage="--link ADDRESS (--service URL | --backend URL --model NAME) [options]",
    )


def _run(args: _GatewayArguments) -> int:
    from edge_runtime.bundle.lookup import gateway_bundle
    from edge_runtime.client.chat_server import ChatServer
    from edge_runtime.form import Form
    from edge_runtime.runtime import EdgeRuntime
    from links import open_link
    from links.gateway.answering import Gateway, serve_link
    from links.gateway.service import AnchorSource, ChatSource, FormSource, ServiceSource
    from links.quota import Quota, state_folder
    from links.seal import Seal, SealedLink

    logging.basicConfig(format="gateway: %(message)s", level=logging.INFO)
    server = client = None
    if args.backend is not None:
        server = ChatServer.open(args.backend, args.model, args.key_file, args.timeout)
    elif args.service is not None:
        client = open_client("service", args.service, args.key_file, args.timeout)
    forms = Form.in_folder(args.forms)
    quota = Quota(state_folder() / "gateway.json", args.spend_peer, args.spend_day)
    edge = EdgeRuntime.open(gateway_bundle(args.edge), threads=args.threads)
    stop, stopped_by = threading.Event(), signal.SIGTERM

    def on_signal(number: int, _: object) -> None:
        nonlocal stopped_by
        stopped_by = signal.Signals(number)
        stop.set()

    with open_link(args.link) as link, ExitStack() as held:
        if not link.service:
            raise UsageError(
                f"link: expected the service's end of one, such as udp-listen:7777, found {args.link!r:.100}"
            )
        source: AnchorSource
        plain = None
        if client is not None:
            source = ServiceSource.open(client, edge.bundle.contract.identity, confidence=args.confidence)
            source = FormSource(forms, client, source)
        else:
            assert server is not None  # the parser requires one of them
            chat = ChatSource(server, edge)
            plain, source = chat.text, FormSource(forms, server, chat)
        if args.seals:
            link = SealedLink(link, [Seal(path) for path in args.seals])
        if args.bundle_port is not None:
            serve_folder(edge.bundle.path, args.bundle_port)
        tariff = link.profile.tariff
        if tariff != FREE and not tariff.price:
            log.warning("no quota holds: a price is not known; state it in the address, as in ?price=0.0001")
        if tariff.price:
            folder = state_folder()
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(
                locked(
                    folder / "gateway.lock",
                    UsageError(
                        f"expected one gateway of a link that costs money, found another with its state "
                        f"in {folder}; stop it, or set XDG_STATE_HOME for this one"
                    ),
                )
            )
        gateway = Gateway(
            link,
            edge.question_context(),
            source,
            _in_thread,
            # Beside the text that a chat server writes, reading a question is a small part of what one costs.
            predictive=args.predictive_from_anyone or client is None or None,
            quota=quota if tariff.price else None,
            bundle=edge.bundle.path.resolve().name,
            plain=plain,
        )
        before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            print(
                f"gateway: {link.profile.name} to {args.service or args.backend}", file=sys.stderr, flush=True
            )
            serve_link(gateway, stop.is_set)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    return INTERRUPTED if stopped_by == signal.SIGINT else 0


def serve_folder(folder: Path, port: int) -> str:
    """Gives a bundle to the local network, in threads that end with the command; returns its address, and
    says how a device gets it. port: 0 for any free one. Raises UsageError.
    """
    from edge_runtime.bundle.bundle import MANIFEST, file_record

    try:
        server = ThreadingHTTPServer(("", port), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    except (OSError, OverflowError) as error:
        raise UsageError(f"bundle port: expected one to listen on, found: {error}") from None
    threading.Thread(target=server.serve_forever, name="bundle", daemon=True).start()
    place = f"{server.server_address[1]}/{MANIFEST} --name {folder.resolve().name}"
    place += f" --sha256 {file_record(folder / MANIFEST).sha256}"
    log.info("the bundle: python -m edge_runtime.bundle get http://HOST:%s", place)
    return place


def _in_thread(job: Callable[[], None]) -> None:
    """Run a job in a thread of its own, which ends with the command. The gateway bounds their number."""
    threading.Thread(target=job, name="service", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
