"""`python -m cloud_anchor.serve`: the service on one machine.

Responsible for the command line. Not responsible for the service (see `app` and `batch_engine`).
"""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_anchor import options
from cloud_anchor.errors import CloudError, RequestError
from common.cli import INTERRUPTED, run_command
from common.progress import Bars
from payload import PayloadError

if TYPE_CHECKING:
    from cloud_anchor.serve.batching.local import LocalBackend
    from cloud_anchor.serve.page import Page
    from cloud_anchor.serve.settings import Limits

EPILOG = """examples:
  # the shipped model on this machine
  python -m cloud_anchor.serve --model tiny --port 8080
  curl -s localhost:8080/v1/anchors -H 'Content-Type: application/json' \\
      -d '{"prompt": "Tell me about Torden: its river, mayor, craft, dish and age."}' -o payload.bin
  python -m edge_runtime.fill --url http://localhost:8080 \\
      --prompt "Tell me about Torden: its river, mayor, craft, dish and age."

  # Dream-7B for devices with this bundle, keys from a file, batches of 16
  python -m cloud_anchor.serve --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --host 0.0.0.0 --keys keys.txt --batch 16

  # the same with the edge model on the GPU too: the checkpoint that the bundle was made from
  python -m cloud_anchor.serve --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --edge-checkpoint Qwen/Qwen2.5-0.5B-Instruct

exit codes: 0 graceful shutdown (SIGTERM), 1 the address cannot be used, 2 usage, 4 bad or missing model,
130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    # A PayloadError here: a tokenizer that payloads do not support.
    return run_command("serve", lambda: _run(args), exit_codes={PayloadError: 4})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m cloud_anchor.serve",
        description="Serve payloads over HTTP: POST /v1/anchors, /v1/anchors/stream; GET /v1/contract, "
        "/healthz, /readyz, /metrics, /openapi.json; and at / a page that shows how an answer comes about.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    result.add_argument("--port", type=int, default=8080, help="0: any free port (default 8080)")
    result.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="API keys, one per line (default: $CLOUD_ANCHOR_KEYS, else none)",
    )
    result.add_argument(
        "--page",
        action=argparse.BooleanOptionalAction,
        help="the page at /, which runs the edge model here as well (default: where --host is this machine)",
    )
    result.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")

    model = options.add_model(result)
    model.add_argument("--threads", type=int, metavar="N", help="threads of PyTorch on a CPU")

    add_limits(result)
    options.add_sampling(result)
    options.add_selection(result)
    return result


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The options of `settings.Limits`."""
    group = parser.add_argument_group("limits")
    group.add_argument("--batch", type=int, help="rows denoised together (default 8)")
    group.add_argument("--queue", type=int, help="requests that may wait for the batch (default 64)")
    group.add_argument("--deadline", type=float, metavar="S", help="seconds per request (default 30)")
    group.add_argument("--body-bytes", type=int, metavar="N", help="bytes per body (default 65536)")
    group.add_argument("--body-seconds", type=float, metavar="S", help="for a body to arrive (default 10)")
    group.add_argument("--header-seconds", type=float, metavar="S", help="for a head to arrive (default 10)")
    group.add_argument("--connections", type=int, metavar="N", help="open at once (default 1024)")
    group.add_argument(
        "--linger",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds between SIGTERM and closing the port, for a load balancer to notice (default 0)",
    )


def limits_of(args: argparse.Namespace) -> Limits:
    """The limits of the command line; raises RequestError."""
    from cloud_anchor.serve.settings import Limits

    names = ("batch", "queue", "deadline", "body_bytes", "body_seconds", "header_seconds", "connections")
    return Limits(**{name: value for name in names if (value := getattr(args, name)) is not None})


def _run(args: argparse.Namespace) -> int:
    limits = limits_of(args)
    options.check(args)  # a wrong option fails before a model is loaded
    if not 0 <= args.port < 1 << 16:
        raise RequestError(f"port: expected 0 to 65535, found {args.port}")
    if args.threads is not None and args.threads < 1:
        raise RequestError(f"threads: expected at least 1, found {args.threads}")
    logging.basicConfig(format="serve: %(message)s", level=args.log_level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    try:
        from cloud_anchor.serve.http.app import create_app
        from cloud_anchor.serve.http.server import Server
    except ImportError as error:
        raise RequestError(f"expected the extra `serve` (pip install '.[serve]'), found: {error}") from error
    import torch

    from cloud_anchor.serve.batching.local import LocalBackend
    from cloud_anchor.serve.http.keys import ApiKeys
    from cloud_anchor.serve.http.telemetry import Metrics

    keys = ApiKeys.read(args.keys)
    with _listen(args.host, args.port) as listener:
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        pipeline = options.open_pipeline(args, answers=limits.batch, progress=Bars("serve", passing=True))
        config = options.denoise_config(args, pipeline.plan())
        metrics = Metrics()
        selection = options.selection(args)
        backend = LocalBackend(pipeline, config, limits, selection, metrics.step, args.model)
        page = _page(args, backend)
        app = create_app(backend, keys, limits, metrics, page)
        server = Server(app, app.service, limits, args.host, args.port, args.linger)
        host, port = listener.getsockname()[:2]
        if not len(keys) and not _is_loopback(host):
            logging.warning("no API keys (--keys): every client that reaches %s:%d is served", host, port)
        print(f"serve: {args.model} at http://{host}:{port}", file=sys.stderr, flush=True)
        if page is not None:
            logging.info("open this address in a browser to watch an answer come about")
        server.run(sockets=[listener])
    return INTERRUPTED if server.stopped_by == signal.SIGINT else 0


def _page(args: argparse.Namespace, backend: LocalBackend) -> Page | None:
    """The page, where it is asked for; raises RequestError where there is no edge model to show."""
    from cloud_anchor.model.checkpoint import find_checkpoint
    from cloud_anchor.model.examples import read_examples
    from cloud_anchor.serve.page import Page
    from cloud_anchor.serve.trace import Tracer
    from edge_runtime.runtime import EdgeRuntime

    model = backend.pipeline.predictive_model
    if args.page is False or (args.page is None and (model is None or not _is_loopback(args.host))):
        return None
    if model is None:
        raise RequestError("page: expected an edge bundle (--edge), whose text it shows, found none")
    edge = EdgeRuntime(model.bundle, threads=args.threads)
    return Page(Tracer(backend, edge), read_examples(find_checkpoint(args.model)))


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class AddressError(CloudError):
    """The address cannot be listened on."""


def _listen(host: str, port: int) -> socket.socket:
    """The bound socket, before a large model is loaded; raises AddressError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise AddressError(
            f"{host}:{port}: expected an address to listen on, found: {error}. Choose another --port."
        ) from error
    return listener


if __name__ == "__main__":
    sys.exit(main())
