"""The error for a library or a room that is not installed: what is missing, and how to get it.

Responsible for the names and the remedy. Not responsible for exit codes (see `cli`).
"""

from __future__ import annotations

from pathlib import Path

ROOMS = frozenset({"cloud_anchor", "convert", "lab", "links"})
"""The rooms that an installation may lack."""

LIBRARIES = frozenset(
    {
        *(
            "fastapi",
            "gguf",
            "h11",
            "jinja2",
            "matplotlib",
            "onnx",
            "pandas",
            "prometheus_client",
            "pydantic",
        ),
        *("ray", "rich", "safetensors", "scipy", "starlette", "tabulate", "torch", "transformers"),
        *("uvicorn", "zstandard"),
    }
)
"""What the extras of commands bring, by the name that is imported."""


def remedy(extra: str) -> str:
    """The command that installs an extra: from the clone, where this is one, else from an index."""
    clone = (Path(__file__).parents[1] / "pyproject.toml").is_file()
    return f"pip install '{'.' if clone else 'inverse-speculation'}[{extra}]'"


def missing(error: ModuleNotFoundError, extra: str) -> str:
    """What is missing and what to do, in a line; raises the error again where it is a mistake of the code.

    A module within a library or a room that is there is such a mistake, or a version that does not fit.
    """
    if error.name not in ROOMS | LIBRARIES:
        raise error
    return f"expected the package {error.name}, found none: {remedy(extra)}"
