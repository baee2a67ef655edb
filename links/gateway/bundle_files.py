"""The gateway's own bundle for the devices of its local network, at the paths of an anchor service."""

from __future__ import annotations

import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from edge_runtime.bundle.bundle import MANIFEST, Bundle
from edge_runtime.client.client import BINARY, JSON
from edge_runtime.errors import UsageError

PATH = "/v1/bundle"


def serve_bundle(bundle: Bundle, port: int) -> ThreadingHTTPServer:
    """Gives the bundle's files, and no others, to whoever asks; in threads that end with this process.

    port: 0 for any free one. Raises UsageError.
    """
    names = {MANIFEST, *bundle.manifest.records}
    about = json.dumps({"name": bundle.path.resolve().name, "identity": bundle.contract.identity})

    class Files(SimpleHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            if self.path != PATH:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(about)))
            self.end_headers()
            self.wfile.write(about.encode())

        def translate_path(self, path: str) -> str:
            name = unquote(path).removeprefix(f"{PATH}/")
            return str(bundle.path / name) if name in names else ""

        def guess_type(self, path: object) -> str:
            return BINARY

        def log_message(self, *_: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer(("", port), Files)
    except OSError as error:
        raise UsageError(f"bundle port: expected one to listen on, found {error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="bundle", daemon=True).start()
    return server
