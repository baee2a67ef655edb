"""The commands that the READMEs promise for each extra.

Responsible for the table alone. Not responsible for running it (see `__main__`).

Commands run in an empty folder with these inputs in it: `edge.bin`, a payload of codec compact for PROMPT by
the shipped pair; `dream`, a random checkpoint in Dream's layout with a chat template of its own; `qwen`, a
random Qwen2 with one, and `qwen.gguf`, the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROMPT = "How old are the people of Ecuador?"
EDGE = f'--prompt "{PROMPT}"'
ANCHOR = f"{EDGE} --fraction 0.1 -o payload.bin"
SERVED = f"edge_runtime.fill --url http://127.0.0.1:{{port}} {EDGE} --no-fallback --timeout 120"
BUNDLE = "testbed-qwen"


@dataclass(frozen=True)
class Command:
    """A command line of the environment.

    line:   words as in a shell; the first is a module for `python -m`, or an installed script. {port} stands
            for a free port.
    writes: file that must be there and not empty afterwards; deleted before.
    status: exit code of a command that does what it is to do; None for any, of a program that is not ours.
    variables: of its environment.
    """

    line: str
    writes: str | None = None
    status: int | None = 0
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Service:
    """A service and the commands that run against it; SIGTERM must then end it with its exit code.

    port: its own, where it cannot be told one.
    """

    start: Command
    requests: tuple[Command, ...] = ()
    port: int | None = None


@dataclass(frozen=True)
class Extra:
    """The commands that must work with an extra alone, and the packages it must not bring.

    absent:       packages that must not be installed with it.
    transformers: the beginning of the version of transformers that it must bring; "" for any, or none.
    tests:        test files of the tree that must pass with it, and with nothing else but pytest.
    asked:        whether it is tried only where it is named: it takes too long for every run.
    extra, pins:  the extra's name where the entry has another, and what else is installed.
    """

    commands: tuple[Command, ...] = ()
    services: tuple[Service, ...] = ()
    absent: tuple[str, ...] = ()
    transformers: str = ""
    tests: tuple[str, ...] = ()
    asked: bool = False
    extra: str = ""
    pins: tuple[str, ...] = ()


FACING_TRANSFORMERS = (
    "tests/convert/test_conversion.py",
    "tests/convert/test_errors.py",
    "tests/convert/test_gguf.py",
    "tests/convert/test_graph.py",
    "tests/cloud_anchor/model",
    "tests/cloud_anchor/sampling/test_parity.py",
)
"""Tests whose outcome depends on transformers: they run on both of its generations."""

CLUSTER = {"KEYS": "none", "MODEL": "testbed", "MIN_ENGINES": "2", "MAX_ENGINES": "2", "CPUS": "0.5"}
CLUSTER = {f"CLOUD_ANCHOR_{name}": value for name, value in CLUSTER.items()}

HOST = ("convert", "cloud_anchor", "lab")
ABSENT = ("torch", "transformers", "onnx", "safetensors", "matplotlib", "scipy", *HOST)
"""What no device has."""

EXTRAS: dict[str, Extra] = {
    "edge": Extra(
        (
            Command("edge_runtime.fill --sample"),
            Command(f"edge_runtime.fill edge.bin {EDGE} --json"),
            Command(f"edge_runtime.bench {BUNDLE} --repeat 1 --length 16"),
            Command("links"),
            Command("links.seal one", writes="one.device.seal"),
            Command(f"inversespec-fill edge.bin {EDGE}"),
            Command("inversespec-bundle list --json"),
            Command(f"inversespec-doctor {BUNDLE} --json"),
            Command("inversespec-bench --help"),
            Command("inversespec-decide --help"),
            Command("inversespec-send --help"),
            Command("inversespec-chat --help"),
            Command("inversespec-payload inspect edge.bin"),
            # Nobody is there: the device answers alone.
            Command(f'inversespec-ask --link udp:127.0.0.1:9 --timeout 1 "{PROMPT}"', status=7),
            Command("inversespec-gateway --help"),
        ),
        absent=(*ABSENT, "rich", "cryptography"),
    ),
    # The oldest ONNX Runtime that is taken: those before it read weights outside a bundle.
    "edge-floor": Extra(
        (
            Command("edge_runtime.fill --sample"),
            Command(f"edge_runtime.fill edge.bin {EDGE} --json"),
            Command(f"edge_runtime.fill edge.bin {EDGE} --variant int4"),
        ),
        extra="edge",
        pins=("onnxruntime==1.24.1",),
    ),
    "endpoint": Extra((Command("edge_runtime.endpoint --help"),), absent=ABSENT),
    "sealed": Extra((Command("links.seal one --encrypted", writes="one.device.seal"),), absent=ABSENT),
    "convert": Extra(
        (
            Command(
                "convert qwen -o bundle --variants fp32,int8 --threshold int8.greedy=0",
                writes="bundle/bundle.json",
            ),
            Command("edge_runtime.doctor bundle"),
            Command("inversespec-convert qwen -o again --variants fp16 --json", writes="again/bundle.json"),
        ),
        absent=("matplotlib", "scipy", "fastapi", "cloud_anchor", "lab"),
        transformers="5.",
        tests=FACING_TRANSFORMERS,
    ),
    # The device's model, on a board: what PyTorch is not needed for.
    "convert-gguf": Extra(
        (
            Command("convert qwen.gguf -o bundle --threshold int8.greedy=0", writes="bundle/bundle.json"),
            Command("edge_runtime.doctor bundle"),
        ),
        absent=("torch", "transformers", "matplotlib", "scipy", "fastapi", "cloud_anchor", "lab"),
    ),
    # optimum-onnx, the other exporter that graphs are compared with, holds transformers 4.57.
    "convert-4": Extra(
        absent=("matplotlib", "scipy", "fastapi"),
        transformers="4.57.",
        tests=(*FACING_TRANSFORMERS, "tests/convert/test_optimum.py"),
        extra="convert",
        pins=("accelerate>=0.26,<2", "optimum-onnx>=0.1,<0.2"),
    ),
    "cloud": Extra(
        (
            Command("cloud_anchor.demo", writes="payload.bin"),
            Command(f"inversespec-demo {EDGE}", writes="payload.bin"),
            Command(f"edge_runtime.fill payload.bin {EDGE}"),
            Command(f"cloud_anchor.anchor --model testbed {ANCHOR}", writes="payload.bin"),
            Command("payload inspect payload.bin"),
            Command(f"cloud_anchor.anchor --model dream {ANCHOR}", writes="payload.bin"),
            Command(f"inversespec-anchor --model testbed {ANCHOR}", writes="payload.bin"),
        ),
        absent=("onnx", "matplotlib", "scipy", "fastapi", "convert", "lab"),
    ),
    "serve": Extra(
        services=(
            Service(
                Command("cloud_anchor.serve --model testbed --port {port}"),
                (
                    Command(SERVED),
                    Command("edge_runtime.bundle get http://127.0.0.1:{port} --name pulled --variant int4"),
                ),
            ),
            Service(Command("inversespec-serve --model dream --port {port}")),
        ),
        absent=("onnx", "matplotlib", "scipy", "ray", "convert", "lab"),
    ),
    "ray": Extra(
        services=(
            Service(
                Command("serve run cloud_anchor.serve.ray_app:app", status=None, variables=CLUSTER),
                (Command(SERVED),),
                port=8000,
            ),
        ),
        absent=("matplotlib", "scipy", "convert", "lab"),
        tests=("tests/cloud_anchor/serve/test_ray.py",),
        pins=("onnx>=1.17,<2",),
    ),
    # Its library is compiled from source, which takes ten minutes of two cores.
    "gguf": Extra(
        (Command(f"cloud_anchor.anchor --model none.gguf {ANCHOR}", status=4),),
        absent=("onnx", "matplotlib", "scipy", "fastapi", "convert", "lab", "gguf"),
        asked=True,
    ),
    "experiments": Extra(
        (
            Command(
                "lab run bytes sizes --model tiny --edge tiny-qwen --prompts 2 "
                "--canvas 64 --total-steps 16 -o results",
                writes="results/report.html",
            ),
            Command("inversespec-lab --help"),
            Command("lab.published.real --help"),
            Command("lab run fill --prompts 1 -o evaluated", writes="evaluated/tables.json"),
            Command("lab run sampler --steps 4 --batch 2 --prompts 2 --repeat 1 -o sampler"),
        ),
        absent=("fastapi",),
    ),
}
"""Extras by name. `make demo` installs cloud; `make real`, `make evaluate` and `make results`
install experiments.
"""
