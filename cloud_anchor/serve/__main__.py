"""`python -m cloud_anchor.serve`: the service on one machine.

Knows the command line. The work is done by `app` and `engine`.
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

from cloud_anchor.anchor import PLAN_TO_CHECK, QUOTA, add_sampling, add_selection, config_of, selection_of
from cloud_anchor.errors import CloudError, RequestError
from edge_runtime.errors import EdgeError
from payload import PayloadError

if TYPE_CHECKING:
    from cloud_anchor.serve.settings import Limits

EPILOG = """examples:
  # the shipped model on this machine
  python -m cloud_anchor.serve --model tiny --port 8080
  curl -s localhost:8080/v1/anchors -H 'Content-Type: application/json' \\
      -d '{"prompt": "Tell me about Torden: its river, mayor, craft, dish and age."}' -o payload.bin
  python -m edge_runtime.fill --url http://localhost:8080 \\
      --prompt "Tell me about Torden: its river, mayor, craft, dish and age."

  # Dream-7B for devices with this bundle, keys from a file, 16 answers at a time
  python -m cloud_anchor.serve --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --host 0.0.0.0 --keys keys.txt --batch 16

exit codes: 0 stopped in order (SIGTERM), 1 the address cannot be used, 2 usage, 4 bad or missing model,
130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        return _run(args)
    except (CloudError, EdgeError) as error:
        return _fail(error, error.exit_code)
    except PayloadError as error:  # model and bundle have different vocabularies
        return _fail(error, 4)
    except KeyboardInterrupt:  # before the service was up
        return 130


def _fail(error: object, code: int) -> int:
    print(f"serve: {error}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m cloud_anchor.serve",
        description="Serve payloads over HTTP: POST /v1/anchors, /v1/anchors/stream; GET /v1/contract, "
        "/healthz, /readyz, /metrics, /openapi.json.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    result.add_argument("--port", type=int, default=8080, help="0 takes a free one (default 8080)")
    result.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="API keys, one a line; default: $CLOUD_ANCHOR_KEYS, else none",
    )
    result.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")

    model = result.add_argument_group("model")
    model.add_argument("--model", default="tiny", help="tiny, a folder, or a hub name (default: tiny)")
    model.add_argument(
        "--edge", type=Path, metavar="BUNDLE", help="the device's bundle: its template and contract"
    )
    model.add_argument("--device", help="cuda, cpu (default: cuda where there is one)")
    model.add_argument("--dtype", help="float32, bfloat16, float16 (default: bfloat16 on cuda, else float32)")
    model.add_argument("--threads", type=int, metavar="N", help="threads of PyTorch on a CPU")

    add_limits(result)
    add_sampling(result)
    add_selection(result)
    return result


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The options of `settings.Limits`."""
    group = parser.add_argument_group("limits")
    group.add_argument("--batch", type=int, help="answers denoised together (default 8)")
    group.add_argument("--queue", type=int, help="requests that may wait for a place (default 64)")
    group.add_argument("--deadline", type=float, metavar="S", help="most seconds of a request (default 30)")
    group.add_argument("--body-bytes", type=int, metavar="N", help="of a request (default 65536)")
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
    """The limits, read; raises RequestError."""
    from cloud_anchor.serve.settings import Limits

    names = ("batch", "queue", "deadline", "body_bytes", "body_seconds", "header_seconds", "connections")
    return Limits(**{name: value for name in names if (value := getattr(args, name)) is not None})


def _run(args: argparse.Namespace) -> int:
    limits = limits_of(args)
    selection = selection_of(args)
    config_of(args, *PLAN_TO_CHECK)  # a wrong option fails before a model is loaded
    if not 0 <= args.port < 1 << 16:
        raise RequestError(f"port: expected 0 to 65535, found {args.port}")
    if args.threads is not None and args.threads < 1:
        raise RequestError(f"threads: expected at least 1, found {args.threads}")
    logging.basicConfig(format="serve: %(message)s", level=args.log_level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    try:
        from cloud_anchor.serve.app import create_app
        from cloud_anchor.serve.server import Server
    except ImportError as error:
        raise RequestError(f"expected the extra `serve` (pip install '.[serve]'), found: {error}") from error
    import torch

    from cloud_anchor.pipeline import DEFAULT_PLAN, Pipeline
    from cloud_anchor.serve.keys import Keys
    from cloud_anchor.serve.local import Local
    from cloud_anchor.serve.telemetry import Metrics

    keys = Keys.read(args.keys)
    listener = _listen(args.host, args.port)
    if listener is None:
        return 1
    with listener:
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        pipeline = Pipeline.open(args.model, edge=args.edge, device=args.device, dtype=args.dtype)
        config = config_of(args, *(pipeline.model.plan or DEFAULT_PLAN))
        metrics = Metrics()
        quota = args.commit_above == QUOTA
        backend = Local(pipeline, config, limits, selection, metrics.step, args.model, quota=quota)
        app = create_app(backend, keys, limits, metrics)
        server = Server(app, app.service, limits, args.host, args.port, args.linger)
        host, port = listener.getsockname()[:2]
        if not len(keys) and not host.startswith("127."):
            logging.warning("no API keys (--keys): whoever reaches %s:%d may ask", host, port)
        print(f"serve: {args.model} at http://{host}:{port}", file=sys.stderr, flush=True)
        server.run(sockets=[listener])
    return 130 if server.stopped_by == signal.SIGINT else 0


def _listen(host: str, port: int) -> socket.socket | None:
    """The bound socket: a port that is taken is found out before a large model is loaded."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        _fail(f"{host}:{port}: expected an address to listen on, found: {error}. Choose another --port.", 1)
        return None
    return listener


if __name__ == "__main__":
    sys.exit(main())
