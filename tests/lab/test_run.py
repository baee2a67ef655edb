"""The whole suite on two items with random models: results, interruptions, usage errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from lab import runs
from lab.__main__ import main
from lab.conditions import ORDERS, PARALLEL, plan
from lab.drafting.spec_diff import DRAFTED
from lab.drafting.spec_diff import grid as grid_of_drafts
from lab.experiments.paper import PHASES
from lab.experiments.paper.pearl import REPLANNED
from lab.runs import Run, denoise_steps, make_runs, plans
from lab.store import Store
from tests.checkpoints import write_tiny_qwen

PROMPTS = ([5, 9, 17], [30, 31, 32, 33, 34])
BASE = DenoiseConfig(canvas=20, total_steps=10, seed=3)


def test_a_kept_run_is_the_run_at_every_stop(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    stops = [1, 4]
    kept = make_runs(model, PROMPTS, BASE, stops)
    for row, prompt in enumerate(PROMPTS):
        assert kept[row][PARALLEL].full.finished, "its answer is the reference of what is taken from it"
        for order in ORDERS:
            read = Run.from_json(json.loads(json.dumps(kept[row][order].to_json())), prompt, 10, model)
            assert read.reversals == 0
            config = plan(order, BASE)
            for state in denoise_steps(model, [prompt], config):
                if state.steps[0] not in (*stops, 10):
                    continue
                (expected,) = state.results()
                _same(read.at(state.steps[0]), expected)


def _same(found: Denoised, expected: Denoised) -> None:
    assert (found.ids, found.when, found.answer) == (expected.ids, expected.when, expected.answer)
    assert found.predicted_answer == expected.predicted_answer
    assert (found.length, found.coverage, found.s50) == (expected.length, expected.coverage, expected.s50)
    size = expected.predicted_length
    assert found.confidence[:size] == pytest.approx(expected.confidence[:size], abs=1e-5)


def test_a_sampler_that_rewrites_a_commit_is_found(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(dream_folder), device="cpu")
    (right,) = runs.run_once(model, [[5, 9]], BASE, [10])
    assert right.reversals == 0
    advance = runs.advance

    def wrong(state: Any) -> None:
        advance(state)
        if state.steps[0] == 4:
            done = (state.when[0] > 0).nonzero()[0, 0]
            state.ids[0, done] = model.mask_id  # in place: an alias of the canvas would not show it
            state.when[0, done] = 0

    monkeypatch.setattr(runs, "advance", wrong)
    (found,) = runs.run_once(model, [[5, 9]], BASE, [10])
    assert found.reversals == 1


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "gsm8k.jsonl"
    rows = [
        {"question": f"A baker sold {n} loaves and then half as many.", "answer": f"<<{n}/2=1>>\n#### {n}"}
        for n in (24, 4100)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def arguments(
    dream_folder: Path, edge_bundle: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    thinker = write_tiny_qwen(tmp_path_factory.mktemp("thinker") / "ar", seed=7)
    models = ["--model", str(dream_folder), "--edge", str(edge_bundle), "--thinker", str(thinker)]
    plan_ = ["--canvas", "20", "--total-steps", "10", "--threads", "1", "--device", "cpu"]
    return [*models, *plan_, "--data", f"gsm8k={data}", "--prompts", "2"]


@pytest.fixture(scope="module")
def results(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    assert main(["run", "paper", *arguments, "-o", str(folder)]) == 0
    return folder


def test_every_phase_writes_one_line_per_item_and_its_tables(results: Path) -> None:
    tables = json.loads((results / "tables.json").read_text())
    for name in PHASES.keys() - {"sizes"}:
        lines = [json.loads(line) for line in (results / "items" / f"{name}.jsonl").open()]
        assert len(lines) == 2, name
        assert not [line["error"] for line in lines if "error" in line], name
    assert tables["tables"]["equation-1"]["rows"][0]["value"]["mean"] > 0
    assert {"commits", "difficulty", "fill-entropy", "fill-confidence", "ablation", "bytes", "timing"} <= set(
        tables["tables"]
    )
    full = [row for row in tables["tables"]["fill-confidence"]["rows"] if row["condition"] == "full run"]
    assert full[0]["F1"]["mean"] == 1
    sent = tables["tables"]["bytes"]["rows"][1]
    assert sent["plain pairs"]["mean"] == 3 * sent["tokens"]["mean"]  # a byte of position, two of id


def test_edge_models_of_several_sizes_are_compared_in_one_precision(
    arguments: list[str], edge_bundle: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(edge_bundle, other)
    at = arguments.index("--edge") + 2
    both = [*arguments[:at], str(other), *arguments[at:]]
    assert main(["run", "sizes", *both, "-o", str(tmp_path / "results")]) == 0
    tables = json.loads((tmp_path / "results" / "tables.json").read_text())
    assert tables["about"]["variant"] == "fp32"
    rows = tables["tables"]["sizes"]["rows"]
    fractions = {row["steps"] for row in rows if row["condition"] == "anchors, filled"}
    assert len(fractions) == len(tables["about"]["paper_steps"])
    assert {row[f"other less {edge_bundle.name}"]["mean"] for row in rows} == {0}, "the same model"


def test_word_problems_are_planned_again_for_fewer_steps(results: Path) -> None:
    line = json.loads((results / "items" / "pearl.jsonl").read_text().splitlines()[0])
    for order in ORDERS:
        rows = [row for row in line["answers"] if row["condition"] == REPLANNED and row["order"] == order]
        assert [row["step"] for row in rows] == plans(10)
        assert rows[-1]["f1"] == 1, "the full run itself"
    assert plans(128) == [8, 13, 16, 24, 32, 48, 64, 96, 128]


def test_drafts_of_the_diffusion_model_leave_the_targets_text(results: Path) -> None:
    for line in (results / "items" / "specdiff.jsonl").open():
        alone, *rows = json.loads(line)["answers"]
        cells = [(row["drafter"], row["gamma"], row["steps"]) for row in rows]
        assert (
            len(set(cells)) == len(cells) == len(list(grid_of_drafts())) + len(DRAFTED) == 24 + len(DRAFTED)
        )
        for row in rows:
            assert row["same"] == 1
            assert row["length"] == alone["length"]
            assert 0 < row["passes"] <= row["alone_passes"]
            assert row["accepted"] == pytest.approx(row["length"] / row["passes"])
            assert 0 < row["cheaper"] < 1, "random drafters cost compute and are hardly ever right"


def test_a_second_run_measures_nothing_and_writes_the_same(
    arguments: list[str], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (results / "tables.json").read_text()

    def never(*args: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(Store, "add", never)
    assert main(["run", "paper", *arguments, "-o", str(results)]) == 0
    assert (results / "tables.json").read_text() == before


def test_an_interrupted_run_continues(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ["run", "commits", *arguments, "-o", str(tmp_path)]
    add = Store.add

    def interrupted(store: Store, name: str, record: Any) -> None:
        if len(store.records("commits")) == 1:
            raise KeyboardInterrupt
        add(store, name, record)

    monkeypatch.setattr(Store, "add", interrupted)
    assert main(chosen) == 130
    assert not (tmp_path / "report.html").exists()
    lines = tmp_path / "items" / "commits.jsonl"
    assert len(lines.read_text().splitlines()) == 1
    lines.write_text(lines.read_text() + '{"id": "cut')
    monkeypatch.undo()
    assert main(chosen) == 0
    assert len(Store(tmp_path, json.loads((tmp_path / "settings.json").read_text())).records("commits")) == 2
    assert main([*chosen, "--seed", "1"]) == 2


def test_a_prompt_that_does_not_fit_is_counted_and_stops_nothing(
    arguments: list[str], tmp_path: Path
) -> None:
    assert main(["run", "commits", *arguments, "--canvas", "505", "-o", str(tmp_path)]) == 0
    tables = json.loads((tmp_path / "tables.json").read_text())
    assert tables["description"][-1].startswith("2 items without a figure in runs")


def test_usage_errors_are_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, wrong, code in (
        ("fills", [], 2),
        ("paper", ["--edge", "nowhere"], 4),
        ("paper", ["--thinker", "nowhere"], 4),
        ("paper", ["--prompts", "3"], 2),
    ):
        assert main(["run", name, *arguments, *wrong, "-o", str(tmp_path / "x")]) == code, wrong
        assert len(capsys.readouterr().err.splitlines()) == 1
