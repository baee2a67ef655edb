"""What the site has beside the pages of docs/: references made from the code, and the files linked to.

A link to a file outside docs/ leads to a page of it below source/; `file.py#name` to the line of that name.
Responsible for these. Not responsible for the layout (mkdocs.yml) or the pictures (`pictures.py`).
"""

from __future__ import annotations

import ast
import importlib
import os
import posixpath
import re
import runpy
import sys
import tomllib
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?\[[^]]*\]\()<?([^)\s>]+)>?(\))|(\bsrcset=|\bsrc=|\bhref=)\"([^\"]+)\"")
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MODULES = """edge_runtime.fill edge_runtime.chat edge_runtime.send edge_runtime.decide edge_runtime.bundle
edge_runtime.doctor edge_runtime.bench edge_runtime.endpoint payload links links.ask links.gateway links.seal
convert cloud_anchor.demo cloud_anchor.anchor cloud_anchor.serve lab lab.published.real""".split()


OUTSIDE = """README.md CONTRIBUTING.md CHANGELOG.md payload/SPEC.md lab/results/README.md lab/results/LOG.md
android_demo/edge-runtime/api.txt web/edge-runtime/src/index.ts web/edge-runtime/src/edge-model.ts
web/edge-runtime/src/edge-session.ts web/edge-runtime/src/client/service-client.ts""".split()
"""What mkdocs.yml names outside docs/."""


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    waiting = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    made = {each.__name__: each() for each in (commands, python, http)}
    for name, text in made.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    waiting += [ROOT / each for each in OUTSIDE]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        place = site(page)
        if page.suffix == ".md":
            text = page.read_text("utf-8")
            waiting += [to for _, to, _ in links(text, page)]
            content: str | bytes = linked(text, page)
        elif page.is_dir():
            names = "\n".join(f"- `{each.name}`" for each in sorted(page.iterdir()))
            content = f"# {page.relative_to(ROOT)}\n\n{names}\n"
        elif page.suffix in (".png", ".svg"):
            content = page.read_bytes()
        else:
            fence = "`" * 6
            kind = f'{fence}{page.suffix[1:] or "text"} linenums="1"'
            hidden = "---\nsearch: {exclude: true}\n---\n\n"
            content = f"{hidden}# {page.relative_to(ROOT)}\n\n{kind}\n{page.read_text('utf-8')}\n{fence}\n"
        if (ROOT / "docs") not in page.parents:
            files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = ROOT / "docs" / page.file.src_uri
    return linked(markdown, source) if source.is_file() else markdown


def on_page_content(html: str, **_: Any) -> str:
    html = html.replace("<th></th>", "<td></td>")  # a head without words is none to a reader's screen reader
    return re.sub(r'href="([^"#]+)" data-line="(\d+)"', r'href="\1#__codelineno-0-\2"', html)


def on_post_page(output: str, **_: Any) -> str:
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


on_post_template = on_post_page


def on_post_build(config: Any) -> None:
    """The theme's buttons at a block of code are no landmark, and a table that scrolls is reached by key."""
    (script,) = Path(config["site_dir"]).glob("assets/javascripts/bundle.*.min.js")
    text = script.read_text("utf-8").replace('"nav",{class:"md-code__nav"}', '"div",{class:"md-code__nav"}')
    table = '{class:"md-typeset__scrollwrap"'
    script.write_text(text.replace(table, f'{table},tabindex:"0"'), "utf-8")


def site(file: Path) -> str:
    """The place of a file of the tree in the site's sources."""
    if file == ROOT / "README.md":
        return "index.md"
    if (ROOT / "docs") in file.parents:
        return str(file.relative_to(ROOT / "docs"))
    name = str(file.relative_to(ROOT))
    return f"source/{name}" if file.suffix in (".md", ".png", ".svg") else f"source/{name}.md"


def links(text: str, page: Path) -> Iterator[tuple[str, Path, str]]:
    """The links of a page to files of the tree: as written, the file, and the fragment."""
    for match in LINK.finditer(BLOCK.sub("", text)):
        written = match[2] or match[5]
        path, _, fragment = written.partition("#")
        if path and "://" not in path and not path.startswith("mailto:"):
            to = Path(os.path.normpath(page.parent / path))
            to = to / "README.md" if (to / "README.md").exists() else to
            if to.exists():
                yield written, to, fragment


def linked(text: str, page: Path) -> str:
    """A page with its links as the site has them."""
    found = {written: (to, fragment) for written, to, fragment in links(text, page)}

    def new(match: re.Match[str]) -> str:
        written = match[2] or match[5]
        if written not in found:
            return match[0]
        to, fragment = found[written]
        path = posixpath.relpath(site(to), posixpath.dirname(site(page)) or ".")
        if match[5]:
            return f'{match[4]}"{path}"'
        if to.suffix == ".py" and fragment:
            return f"{match[1]}{path}){{ data-line={line_of(to, fragment)} }}"
        return f"{match[1]}{path}{'#' + fragment if fragment else ''})"

    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(new, part) for part in parts)


def line_of(file: Path, name: str) -> int:
    """The line at which a name such as `Class.method` is defined."""
    body: list[Any] = ast.parse(file.read_text("utf-8")).body
    node = None
    for part in name.split("."):
        node = next((each for each in body if getattr(each, "name", None) == part), None)
        if node is None:
            raise LookupError(f"{file}: expected a definition of {name}, found none")
        body = getattr(node, "body", [])
    assert node is not None
    return int(node.lineno)


def commands() -> str:
    scripts = {}
    for file in (ROOT / "pyproject.toml", *sorted(ROOT.glob("distributions/*/pyproject.toml"))):
        names = tomllib.loads(file.read_text())["project"]["scripts"]
        scripts |= {at.partition(":")[0].removesuffix(".__main__"): name for name, at in names.items()}
    parts = ["# Commands\n\nEach command's own help. Exit codes are [on one page](errors.md)."]
    with patch.dict(os.environ, {"COLUMNS": "100"}):
        for module in MODULES:
            short = f"The same: `{scripts[module]}`.\n\n" if module in scripts else ""
            parts.append(f"## python -m {module}\n\n{short}" + helps(parser_of(module)))
    return "\n\n".join(parts)


def helps(parser: ArgumentParser) -> str:
    text = f"```text\n{parser.format_help()}```"
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            text += "".join("\n\n" + helps(each) for each in action.choices.values())
    return text


class Found(BaseException):
    """Ends a command that has built its parser."""


def parser_of(module: str) -> ArgumentParser:
    def stop(parser: ArgumentParser, *_: Any, **__: Any) -> Any:
        raise Found(parser)

    try:
        with patch.object(ArgumentParser, "parse_args", stop), patch.object(sys, "argv", [module]):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Found as done:
        return done.args[0]  # type: ignore[no-any-return]
    raise LookupError(f"{module}: expected a parser, found none")


def python() -> str:
    parts = ["# Python\n\nWhat the packages export. Everything else may change."]
    for package in ("edge_runtime", "payload", "links", "cloud_anchor", "convert"):
        tree = ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        names = [f"{node.module}.{each.name}" for node in imports for each in node.names]
        names = [name for name in names if name.startswith(package)]
        parts += [f"## {package}", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def http() -> str:
    serve = importlib.import_module("cloud_anchor.serve.http.app")
    backend = importlib.import_module("cloud_anchor.serve.batching.backend")
    keys = importlib.import_module("cloud_anchor.serve.http.keys").ApiKeys(["k" * 24])
    limits = importlib.import_module("cloud_anchor.serve.settings").Limits()
    ways = (("edge-aware", "paper", "confidence"), ("compact", "portable", "predictive"))
    info = backend.ServiceInfo("MODEL", "", {}, 192, 192, 19, 512, *ways, limits)
    app = serve.create_app(SimpleNamespace(info=info), keys, limits)
    schema = app.app.openapi()
    bodies = schema["components"]["schemas"]
    parts = ["# HTTP\n\nFrom the service's own `/openapi.json`, of a service started without options."]
    for path, operations in schema["paths"].items():
        for method, of in operations.items():
            parts.append(f"## {method.upper()} {path}\n\n{of.get('description') or of.get('summary', '')}")
            content = of.get("requestBody", {}).get("content", {})
            for body in (each["schema"].get("$ref", "").rpartition("/")[2] for each in content.values()):
                if body in bodies:
                    parts.append(fields(bodies[body]))
            answers = (f"{code} {each['description']}" for code, each in of["responses"].items())
            parts.append("Answers: " + ", ".join(answers))
    return "\n\n".join(parts) + "\n"


def fields(schema: Any) -> str:
    rows = ["| field | type | |", "|---|---|---|"]
    for name, of in schema.get("properties", {}).items():
        kinds = [each.get("type", "object") for each in of.get("anyOf", [of]) if each.get("type") != "null"]
        known = [key for key in ("enum", "minimum", "maximum", "default") if of.get(key) is not None]
        ranges = (f"{key} {of[key]}" for key in known)
        says = " ".join([*of.get("description", "").split(), *ranges]).replace("|", " ")
        rows.append(f"| `{name}` | {' or '.join(map(str, kinds))} | {says} |")
    return "\n".join(rows)
