"""Every target reads its seeds and its corpus: nothing but documented errors comes out.

What was once a crash is in the corpus; `make fuzz` looks for more with the same targets.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.fuzz.json_mutator import mutated
from tests.fuzz.one_target import documented

HERE = Path(__file__).parent
TARGETS = sorted(file.stem for file in (HERE / "targets").glob("*.py"))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_corpus(name: str) -> None:
    target = import_module(f"tests.fuzz.targets.{name}")
    work, read = documented(target), 0
    for data in target.seeds():
        try:
            target.run(data)
            read += 1
        except target.ALLOWED:
            pass
    assert read, "expected some seed to be read to its end"
    for file in sorted((HERE / "corpus" / name).glob("*")):
        work(file.read_bytes())


def test_the_corpus_is_small() -> None:
    files = [file for file in (HERE / "corpus").rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} <= set(TARGETS)
    assert sum(file.stat().st_size for file in files) < 300_000


def test_a_mutation_of_json_is_json() -> None:
    data = json.dumps({"a": [1, 2, {"b": "c"}], "d": None}).encode()
    found = {mutated(data, 500, seed, lambda data, most: b"of bytes") for seed in range(300)}
    assert b"of bytes" in found
    changed = [json.loads(each.decode("utf-8", "surrogatepass")) for each in found - {b"of bytes"}]
    assert len(changed) > 100
    assert len(mutated(data, 10, 1, lambda data, most: data[:most])) <= 10
