"""The page in headless Chromium, and its picture: `python -m tests.cloud_anchor.serve.page_browser -o FILE`.

Needs Debian's `chromium` and the extra `dev`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from cloud_anchor.model.checkpoint import read_examples
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.page import Page
from cloud_anchor.serve.settings import Limits
from cloud_anchor.serve.trace import Tracer
from cloud_anchor.shipped import PAIRS
from edge_runtime.runtime import EdgeRuntime
from tests.cloud_anchor.serve.service_runner import served
from tests.shipped import TINY_BUNDLE

CHROMIUM = shutil.which("chromium")
LIMITS = Limits(batch=4, queue=4, deadline=120)
PICTURE_QUESTION = "Tell me about Torden: its river, mayor, craft, dish and age."
DEMO = Path(__file__).resolve().parents[3] / "web" / "demo" / "dist"
DONE = "body[data-state=idle]"
SECONDS = 120_000
"""Milliseconds that the browser waits for anything: the machine may be busy."""


@contextmanager
def shipped_page(keys: ApiKeys | None = None, device: Path | None = None) -> Iterator[str]:
    """The address of a service with the page, of the shipped pair; device: see `Page.device`."""
    pipeline = Pipeline.open("tiny", device="cpu")
    plan = pipeline.plan()
    config = type(plan)(
        canvas=plan.canvas, total_steps=plan.total_steps, steps=steps_for(0.1, plan.total_steps)
    )
    backend = LocalBackend(pipeline, config, LIMITS, name="tiny")
    edge = EdgeRuntime.open(TINY_BUNDLE, threads=1)
    page = Page(Tracer(backend, edge), read_examples(PAIRS["tiny"].checkpoint), device)
    with served(backend, LIMITS, keys, page=page, bundle=edge.bundle) as client:
        yield f"{client.url}/"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window, as Playwright's object."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Root may not use Chromium's sandbox, and the page is this repository's own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def opened(browser: Any, address: str, width: int, height: int = 900, scheme: str = "light") -> Any:
    """The page in a window of this size, once it has its examples or asks for a key.

    `faults` of the result: what the browser complained about.
    """
    page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
    page.set_default_timeout(SECONDS)
    page.faults = []
    page.on("console", lambda message: page.faults.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.goto(address)
    # Not wait_for_function: it asks again with eval, which the page's content security policy refuses.
    page.wait_for_selector("#examples button, #key-field:not([hidden])", state="attached")
    return page


def ask(page: Any, question: str, speed: str = "0") -> None:
    """Asks, and waits for all three texts."""
    page.select_option("#speed", speed)
    page.fill("#question", question)
    page.click("#go")
    page.wait_for_selector(DONE)


def photograph(address: str, browser: Any, width: int = 1180, scheme: str = "light") -> bytes:
    """The whole page with an answer, as a small PNG."""
    page = opened(browser, address, width, scheme=scheme)
    ask(page, PICTURE_QUESTION)
    page.mouse.move(0, 0)
    return _screenshot(page)


@contextmanager
def static_site(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def photograph_demo(address: str, browser: Any, width: int = 960, scheme: str = "light") -> bytes:
    """The static demo with an answer, and the list of all that the network carried: neither text is in it."""
    page = browser.new_context(viewport={"width": width, "height": 700}, color_scheme=scheme).new_page()
    page.set_default_timeout(SECONDS)
    bodies: list[bytes] = []
    page.on("requestfinished", lambda request: bodies.append(request.response().body()))
    page.goto(address)
    page.wait_for_selector(DONE)
    for column in ("cloud", "alone"):
        text = page.inner_text(f"[data-column={column}] .text").strip().encode()
        if len(text) < 10 or len(bodies) < 5 or any(text in body for body in bodies):
            raise SystemExit(f"the demo's answer: expected one written in the tab alone, found {text!r}")
    return _screenshot(page)


def _screenshot(page: Any) -> bytes:
    """The whole page as a PNG of 64 colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    found = io.BytesIO()
    picture.quantize(64, dither=Image.Dither.NONE).save(found, "png", optimize=True)
    return found.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument(
        "--demo", action="store_true", help="of the static demo, as `make web-demo` builds it"
    )
    args = parser.parse_args()
    place, picture = (static_site(DEMO), photograph_demo) if args.demo else (shipped_page(), photograph)
    with place as address, chromium() as browser:
        args.output.write_bytes(picture(address, browser, args.width, args.scheme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
