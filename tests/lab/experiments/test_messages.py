"""Experiment `messages`: on the shipped model and a server that always says the same, and its tables."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from lab.__main__ import main
from lab.experiments import messages
from lab.experiments.messages import DEVICE, FORM, POOLED, SERVER, TITLES
from lab.statistics import Summary
from tests.edge_runtime.client.chat_servers import chat_server, first_tokens
from tests.lab.experiments.test_answers import records_of


def test_every_text_is_read_by_the_device_in_every_way_and_by_the_server(tmp_path: Path) -> None:
    mmlu = {"question": "Which?", "choices": ["w", "x", "y", "z"], "answer": 1, "subject": "physics"}
    (tmp_path / "mmlu.jsonl").write_text(f"{json.dumps(mmlu)}\n" * 4)
    said = first_tokens(yes=-0.1, no=-2.4, network=-0.7, English=-0.1, B=-0.2)
    with chat_server(said) as (address, asked):
        line = "run messages --edge testbed-qwen --threads 1 --prompts 6 --name m --server".split()
        line += [address, "--mmlu", str(tmp_path / "mmlu.jsonl"), "-o", str(tmp_path / "out")]
        assert main(line) == 0
    assert len(asked) == 6 * len(TITLES) + 4
    assert main(line) == 0, "nobody is asked again"
    found = records_of(tmp_path / "out", "messages")
    assert [each["fit"] for each in found.values()] == [True, False] * 5
    for each in found.values():
        assert len(each["read"]) == (2 if each["fit"] else 5)
        assert {tuple(map(len, read)) for read in each["read"].values()} in ({tuple(FORM.sizes)}, {(4,)})
    tables = json.loads((tmp_path / "out" / "tables.json").read_text())["tables"]
    right = {(row["question"], row["read by"]): row["right"]["mean"] for row in tables["readers"]["rows"]}
    assert len(right) == (len(TITLES) + 2) * 7
    assert right["MMLU", SERVER] == 1


def record(number: int, luck: random.Random) -> dict[str, Any]:
    """A text about which the server is always right, and the device where it is sure."""
    right, device, server = list[int](), list[list[float]](), list[list[float]]()
    for size in FORM.sizes:
        label, known = luck.randrange(size), luck.random() < 0.5
        seen = label if known else luck.randrange(size)
        right.append(label)
        server.append([9.0 * (at == label) for at in range(size)])
        device.append([(5.0 if known else 0.2) * (at == seen) for at in range(size)])
    about = {"id": str(number), "edge": "e", "text": "t", "questions": TITLES, "right": right}
    return about | {"fit": number % 2 == 0, "read": {DEVICE: device, SERVER: server}}


def test_a_device_that_asks_where_it_is_not_sure_is_as_right_as_the_server() -> None:
    luck = random.Random(1)
    readers, cascade = messages.tables([record(number, luck) for number in range(80)], messages.About())
    pooled = {row["read by"]: row for row in readers.rows if row["question"] == POOLED}
    assert pooled.keys() == {DEVICE, SERVER, f"{DEVICE}, calibrated", f"{SERVER}, calibrated"}
    ahead = pooled[SERVER]["less always"]
    assert isinstance(ahead, Summary)
    assert ahead.low > 0
    none, *_, half, _, every = cascade.rows
    for row, least in ((none, 0.6), (half, 0.97), (every, 1.0)):
        kept = row["of the cloud's"]
        assert isinstance(kept, Summary)
        assert least <= kept.mean <= 1
        assert kept.low <= kept.mean <= kept.high
    assert (none["asked"], none["bytes back"], every["asked"]) == (0, 0, 1)
    assert 0 < float(str(half["bytes back"])) < float(str(every["bytes back"]))
