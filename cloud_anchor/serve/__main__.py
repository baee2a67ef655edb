"""`python -m cloud_anchor.serve`: the service of `http.app` and `batching` on one machine."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_anchor.errors import CloudError, RequestError, require
from cloud_anchor.options import PipelineOptions
from common.cli import INTERRUPTED, CommandParser, option, run_command
from common.progress import Bars
from payload import PayloadError

if TYPE_CHECKING:
    from cloud_anchor.serve.batching.local import LocalBackend
    from cloud_anchor.serve.page import Page
    from cloud_anchor.serve.settings import Limits

EPILOG = """examples:
  # the shipped model on this machine
  python -m cloud_anchor.serve
  python -m edge_runtime.fill --url http://localhost:8080 --prompt "Why tin?"

  # Dream-7B for devices with this bundle, keys from a file
  python -m cloud_anchor.serve --model Dream-org/Dream-v0-Instruct-7B \\
      --edge bundles/qwen2.5-0.5b --host 0.0.0.0 --keys keys.txt --batch 16

exit codes: 0 graceful shutdown (SIGTERM), 1 the address cannot be used,
2 usage, 4 bad or missing model, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(PipelineOptions):
    """The options of this command; None for a limit stands for that of `settings.Limits`."""

    host: str = option("127.0.0.1", "address to listen on (default 127.0.0.1)")
    port: int = option(8080, "0: any free port (default 8080)")
    keys: Path | None = option(
        None, "one a line, a name before it if you like; `none`: everyone (default: $CLOUD_ANCHOR_KEYS)"
    )
    page: str | None = option(
        None,
        "on, off, or the folder that `make web-page` builds (default: on where --host is this machine)",
        metavar="WHAT",
    )
    give_bundle: bool = option(
        True,
        "give the edge bundle to devices (default)",
        flags=("--bundle",),
        action=argparse.BooleanOptionalAction,
    )
    forms: Path | None = option(None, "folder of JSON Schemas that requests may name", metavar="DIR")
    batch: int | None = option(None, "answers denoised together (default 8)")
    queue: int | None = option(None, "requests that may wait (default 64)")
    deadline: float | None = option(None, "seconds per request (default 30)", metavar="S")
    threads: int | None = option(None, "threads of PyTorch on a CPU")
    log_level: str = option("info", "%(choices)s", choices=("debug", "info", "warning", "error"), metavar="L")

    def limits(self) -> Limits:
        """The limits that are given; raises RequestError."""
        from cloud_anchor.serve.settings import Limits

        names = {each.name for each in fields(Limits)} & {each.name for each in fields(self)}
        return Limits(**{name: value for name in names if (value := getattr(self, name)) is not None})


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse(ServeOptions, argv)
    # A PayloadError here: a tokenizer that payloads do not support.
    return run_command("serve", lambda: _run(options), extra="serve", exit_codes={PayloadError: 4})


def parser() -> CommandParser:
    """The command line."""
    result = CommandParser(
        prog="python -m cloud_anchor.serve",
        usage="python -m cloud_anchor.serve [--model MODEL] [--port PORT] [options]",
        description="Serve payloads over HTTP: POST /v1/anchors, /v1/anchors/stream,\n/v1/decisions; "
        "GET /v1/contract, /v1/bundle, /healthz, /readyz, /metrics, /openapi.json; a page",
        epilog=EPILOG,
    )
    result.declare(ServeOptions)
    return result


def _run(options: ServeOptions) -> int:
    limits = options.limits()
    options.check()
    require("port", 0 <= options.port < 1 << 16, "0 to 65535", options.port)
    require("threads", options.threads is None or options.threads >= 1, "at least 1", options.threads)
    from edge_runtime.endpoint.server import Server, listen, log_few_lines

    log_few_lines("%(asctime)s serve: %(message)s", options.log_level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    from cloud_anchor.serve.batching.local import LocalBackend
    from cloud_anchor.serve.http.app import create_app
    from cloud_anchor.serve.http.decision_routes import FormReader
    from cloud_anchor.serve.http.keys import ApiKeys
    from cloud_anchor.serve.http.telemetry import Metrics
    from edge_runtime.form import Form

    keys, forms, began = ApiKeys.read(options.keys), Form.in_folder(options.forms), time.monotonic()
    with listen(options.host, options.port, CloudError) as listener:
        if options.threads is not None:
            import torch

            torch.set_num_threads(options.threads)
        logging.info("loading %s", options.model)
        pipeline = options.open_pipeline(answers=limits.batch, progress=Bars("serve", passing=True))
        config, selection = options.config(pipeline.plan()), options.selection()
        metrics = Metrics()
        backend = LocalBackend(pipeline, config, limits, selection, metrics.step, options.model)
        page = _page(options, backend)
        bundle = pipeline.edge.bundle if pipeline.edge is not None and options.give_bundle else None
        reader = FormReader(pipeline, limits, forms)
        app = create_app(backend, keys, limits, metrics, page, bundle, reader)

        # An admitted request may take all of its deadline, and a slow client a little more.
        server = Server(app, limits.connections, limits.deadline + 15, began, access_log=False)
        host, port = listener.getsockname()[:2]
        if not len(keys) and not _is_loopback(host):
            logging.warning("no API keys (--keys): every client that reaches %s:%d is served", host, port)
        print(f"serve: {options.model} at http://{host}:{port}", file=sys.stderr, flush=True)
        if page is not None:
            logging.info("open this address in a browser to watch an answer form")
        server.run(sockets=[listener])
    return INTERRUPTED if server.stopped_by == signal.SIGINT else 0


def _page(options: ServeOptions, backend: LocalBackend) -> Page | None:
    """The page, where it is asked for; raises RequestError where there is no edge model to show."""
    from cloud_anchor.model.chat import ChatModel
    from cloud_anchor.serve.page import DEVICE_FILES, Page
    from cloud_anchor.serve.trace import Tracer
    from edge_runtime.runtime import EdgeRuntime

    model = backend.pipeline.edge
    wanted = options.page
    if wanted is None:
        wanted = "on" if model is not None and _is_loopback(options.host) else "off"
    if wanted == "off":
        return None
    if model is None:
        raise RequestError("page: expected an edge bundle (--edge), whose text it shows, found none")
    edge = EdgeRuntime(model.bundle, threads=options.threads)
    device, examples = Path(wanted) if wanted != "on" else None, []
    if not isinstance(backend.pipeline.model, ChatModel):
        from cloud_anchor.model.checkpoint import find_checkpoint, read_examples

        examples = read_examples(find_checkpoint(options.model, weights=options.backend is None))
    if device is not None:
        missing = [name for name in DEVICE_FILES if not (device / name).is_file()]
        require(
            "page", not missing, f"on, off, or a folder with {', '.join(DEVICE_FILES)}", f"none of {missing}"
        )
        require("page", options.give_bundle, "a service that gives its bundle", "--no-bundle")
    return Page(Tracer(backend, edge), examples, device)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


if __name__ == "__main__":
    sys.exit(main())
