"""python -m edge_runtime.endpoint: serve this device's model to clients of OpenAI's chat protocol.

Responsible for the command line. Not responsible for requests (see `app`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cli import INTERRUPTED, option, run_options
from common.files import read_text
from edge_runtime.commands import CloudOptions, ModelOptions, choose_bundle, open_runtime, positive
from edge_runtime.errors import UsageError

KEY_VARIABLE = "EDGE_ENDPOINT_KEY"
CONNECTIONS = 64
SECONDS_TO_END = 10.0
"""For which an answer may go on after SIGTERM."""

_EPILOG = f"""\
examples:
  python -m edge_runtime.endpoint --port 8081
  curl localhost:8081/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{{"messages": [{{"role": "user", "content": "Who...?"}}]}}'
  # for other machines: a key, in a file or in ${KEY_VARIABLE}
  python -m edge_runtime.endpoint --host 0.0.0.0 --endpoint-key-file key.txt

exit codes: 0 ended (SIGTERM), 2 wrong usage, 4 bad or missing model
"""


@dataclass(frozen=True, kw_only=True)
class _EndpointArguments(ModelOptions, CloudOptions):
    """Serve this device's model to clients of OpenAI's chat protocol."""

    host: str = option("127.0.0.1", "address to listen at; another than this machine's needs a key")
    port: int = option(8081, "0 for a free one (default 8081)")
    endpoint_key_file: Path | None = option(
        None, f"file with the key that clients send; default: ${KEY_VARIABLE}"
    )
    max_tokens: int = option(512, "most tokens of an answer (default 512)", positive)
    cache: int = option(
        128,
        "most MB of caches of conversations that wait, beside the one answered last (default 128)",
        metavar="MB",
    )
    delay: float | None = option(
        None,
        "most seconds for which prefer_on_device holds text back that the cloud may still change; what comes "
        "later is not taken; default: any",
        metavar="S",
    )


def _run(args: _EndpointArguments) -> int:
    from edge_runtime.client.client import open_client
    from edge_runtime.endpoint.app import LOOPBACK, Endpoint, application
    from edge_runtime.endpoint.server import Server, listen, log_few_lines
    from edge_runtime.session import PREFER_ON_DEVICE, mode_of

    if args.cache < 0:
        raise UsageError(f"--cache: expected 0 MB or more, found {args.cache}")
    log_few_lines("endpoint: %(message)s", logging.INFO)
    file = args.endpoint_key_file
    key = read_text(file, UsageError).strip() if file else os.environ.get(KEY_VARIABLE) or None
    if args.host not in LOOPBACK and key is None:
        raise UsageError(
            f"--host: expected a key (--endpoint-key-file, ${KEY_VARIABLE}) for an address that others "
            f"reach, {args.host}, found none"
        )
    client = open_client("url", args.url, None, args.timeout) if args.url else None
    edge = open_runtime(args, choose_bundle(client, args.edge), waiting=args.cache << 20)
    listener = listen(args.host, args.port, UsageError)
    logging.info("loading %s", edge.bundle.path.name)
    _ = edge.model
    endpoint = Endpoint(
        edge,
        client,
        mode=mode_of(args.mode, client),
        key=key,
        max_tokens=args.max_tokens,
        delay=args.delay,
    )
    if endpoint.mode == PREFER_ON_DEVICE:
        within = "" if args.delay is None else f", or after {args.delay:g} s"
        logging.info("mode %s: an answer is sent when it is settled%s", PREFER_ON_DEVICE, within)
    server = Server(application(endpoint), CONNECTIONS, SECONDS_TO_END)
    logging.info("running on http://%s:%d", *listener.getsockname()[:2])
    server.run(sockets=[listener])
    return INTERRUPTED if server.stopped_by == signal.SIGINT else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_options(
        "edge_runtime.endpoint", _run, _EndpointArguments, argv, _EPILOG, usage="[options]", extra="endpoint"
    )


if __name__ == "__main__":
    sys.exit(main())
