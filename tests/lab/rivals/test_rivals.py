"""The rivals: their rules on fakes, their runs on the shipped pair, their figures on data made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import commit_in_parallel
from cloud_anchor.shipped import PAIRS
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.runtime import EdgeRuntime
from lab.__main__ import main
from lab.experiment import About
from lab.experiments.frontier import text_codecs
from lab.links.conversation import (
    CLOUD,
    DEVICE,
    EDGE,
    REQUEST,
    RESPONSE,
    Program,
    Receive,
    Send,
    Speeds,
    Work,
    Write,
    converse,
)
from lab.links.networks import NETWORKS
from lab.questions.items import Item, load_items
from lab.rivals import methods
from lab.rivals.cloud_tokens import DiffusionEngine
from lab.rivals.experiment import RivalOptions, tables
from lab.rivals.methods import AskedQuestion, Exchange, MethodBench, MethodOptions
from lab.rivals.routing import route
from lab.rivals.sketch import PATIENCE, expand, sketch_words
from lab.rivals.standings import Race, curves, figures_of, race, right_at
from lab.tables import Answers
from payload import AnchorSet
from tests.shipped import TINY_BUNDLE

END = 9


class ScriptedEngine(BaseEngine):
    """Token by place in the answer: (token, its probability, another, its probability)."""

    def __init__(self, script: Sequence[tuple[int, float, int, float]], prompt: int) -> None:
        super().__init__(context=64, vocab=10)
        self.script, self.prompt = script, prompt

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        found = np.full((len(rows), 10), -30.0, np.float32)
        for index, row in enumerate(rows):
            place = self.length + row + 1 - self.prompt
            token, chance, other, rest = self.script[min(place, len(self.script) - 1)]
            found[index, token], found[index, other] = np.log(chance), np.log(rest)
        return found


# The rules.


def test_the_router_asks_where_the_device_is_unsure() -> None:
    engine = ScriptedEngine([(1, 0.9, 2, 0.1), (3, 0.6, 2, 0.4), (5, 0.9, 2, 0.1), (END, 0.9, 1, 0.1)], 2)
    asked: list[list[int]] = []

    def ask(text: Sequence[int]) -> int:
        asked.append(list(text))
        return 4

    found = route(engine, ask, [7, 7], frozenset({END}), 16, confident=0.8)
    assert (found.ids, found.asked) == ([1, 4, 5], [1])
    assert asked == [[7, 7, 1]]
    assert route(engine, ask, [7, 7], frozenset({END}), 16, confident=0.0).asked == []
    assert route(engine, lambda text: END, [7, 7], frozenset({END}), 16, confident=2.0).ids == []
    assert len(route(engine, ask, [7, 7], frozenset({END}), 2).ids) == 2


def test_a_sketch_keeps_words_that_carry_a_fact() -> None:
    assert sketch_words("The river of Torden is the Bel.") == [" river", " Torden", " Bel."]
    assert sketch_words("") == []


def test_an_expansion_has_every_word_in_order() -> None:
    ends = frozenset({END})
    likely = ScriptedEngine([(1, 0.9, 2, 0.1), (1, 0.9, 3, 0.06), (1, 0.5, 3, 0.1), (END, 0.9, 5, 0.1)], 1)
    ids, given = expand(likely, [[2], [3, 4]], [7], ends, 32)
    assert (ids, given) == ([2, 3, 4], [True, True, True]), "each is likely enough at once"
    unlikely = ScriptedEngine([(1, 1.0, 8, 1e-9)] * 3 + [(END, 1.0, 8, 1e-9)], 1)
    ids, given = expand(unlikely, [[2], [3]], [7], ends, 32)
    assert ids == [1, 1, 1, 2, 3], "the words come where the device would have ended"
    assert given == [False] * 3 + [True] * 2
    endless = ScriptedEngine([(1, 1.0, 8, 1e-9)], 1)
    ids, given = expand(endless, [[2]], [7], ends, 12)
    assert ids == [1] * PATIENCE + [2] + [1] * (12 - PATIENCE - 1)


# Runs on the shipped pair.


@pytest.fixture(scope="module")
def bench() -> MethodBench:
    if not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists():
        pytest.skip("the shipped pair is missing")
    edge = EdgeRuntime.open(TINY_BUNDLE, threads=1)
    pipeline = Pipeline.open("tiny", edge=edge, device="cpu")
    return MethodBench(pipeline, edge, MethodOptions(shots=(1, 12), refine=(1, 12)))


@pytest.fixture(scope="module")
def item() -> Item:
    return load_items(["tiny"], 2, 0)[1]


@pytest.fixture(scope="module")
def found(bench: MethodBench, item: Item) -> dict[str, Exchange]:
    return {exchange.method: exchange for exchange in bench.exchanges(item)}


def sent(program: Program) -> list[int]:
    return [action.body for action in program if isinstance(action, Send)]


def empty(bench: MethodBench) -> AnchorSet:
    return AnchorSet.empty(bench.plan.canvas, bench.pipeline.form.contract)


def test_whole_answers_are_one_text_in_four_codings(
    bench: MethodBench, item: Item, found: dict[str, Exchange]
) -> None:
    whole = [found[name] for name in methods.WHOLE.values()]
    assert len({exchange.final for exchange in whole}) == 1
    text = bench.pipeline.form.tokenizer.decode(list(whole[0].final)).encode()
    assert sum(sent(whole[0].cloud)) == len(text)
    codecs = text_codecs(item.prompt)
    assert sent(whole[1].cloud) == [len(codecs["gzip"](text))]
    assert sent(whole[2].cloud) == [len(codecs["zstd-19, prompt as dictionary"](text))]
    assert 0 < sent(whole[3].cloud)[0] < len(text) / 4
    assert len({exchange.rows(CLOUD) for exchange in whole}) == 1
    parts = [action for action in whole[0].cloud if isinstance(action, Send)]
    assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_ours_is_what_the_product_decodes(bench: MethodBench, item: Item, found: dict[str, Exchange]) -> None:
    for steps in (1, 12):
        config = replace(commit_in_parallel(bench.plan), steps=steps)
        (result,) = bench.pipeline.make([item.prompt], config)
        assert result.walk is not None
        assert list(found[methods.shot(steps)].final) == result.walk.text
        assert list(found[methods.early(steps)].final) == result.run.predicted_answer
        assert found[methods.shot(steps)].rows(CLOUD) == result.run.steps


def test_refined_is_what_the_device_ends_with(
    bench: MethodBench, item: Item, found: dict[str, Exchange]
) -> None:
    """The last text of `fill_refined` with the same payloads."""
    refined = found[methods.REFINED]
    feed = AnchorFeed()
    prompt = bench.pipeline.form.ids(item.prompt)
    ids: list[int] = []
    stream = fill_refined(
        bench.edge.engine, prompt, feed, bench.pipeline.form.contract, FillOptions(score_anchors=False)
    )
    for count, each in enumerate(stream):
        if isinstance(each, Retract):
            del ids[each.position :]
        else:
            ids.append(each.id)
        if count == 2:
            (result,) = bench.pipeline.make([item.prompt], bench.plan)
            feed.put(result.anchors)
            feed.close()
    assert tuple(ids) == refined.final
    texts = [action.ids for action in refined.device if isinstance(action, Write)]
    assert texts[0] == found[methods.ALONE].final


def test_speculation_over_the_network_loses_nothing(
    bench: MethodBench, item: Item, found: dict[str, Exchange]
) -> None:
    """The text is the cloud's own, written without drafts; every turn is a round trip."""
    verified = found[methods.VERIFIED]
    prompt = bench.pipeline.form.ids(item.prompt)
    engine = DiffusionEngine(bench.pipeline.model, len(prompt), bench.plan.canvas)
    options = FillOptions(score_anchors=False, max_tokens=bench.plan.canvas)
    ids = [token.id for token in fill(engine, prompt, empty(bench), options)]
    assert list(verified.final) == ids
    assert len(engine.calls) == len(ids) + 1, "a pass a token, and one for the end"
    drafted = sum(work.passes for work in verified.device if isinstance(work, Work)) - 1
    assert verified.rows(CLOUD) == drafted + verified.requests
    assert verified.requests < len(ids)


def test_routing_shows_the_devices_tokens_before_it_asks(found: dict[str, Exchange]) -> None:
    routed, alone = found[methods.ROUTED], found[methods.ALONE]
    assert routed.rows(CLOUD) == routed.requests > 0
    first = next(action for action in routed.device if isinstance(action, Write))
    assert first.ids == alone.final[: len(first.ids)]
    assert routed.rows(EDGE) == 0


def test_nothing_is_asked_by_a_device_that_is_always_sure(bench: MethodBench, item: Item) -> None:
    sure = MethodBench(bench.pipeline, bench.edge, MethodOptions(confident=0.0))
    question = AskedQuestion(sure, item)
    assert question.routed().requests == 0
    assert question.routed().final == question.alone.ids


def test_every_exchange_survives_json_and_comes_to_its_end(found: dict[str, Exchange]) -> None:
    speeds = Speeds(0.04, 0.02, 0.01, 0.001)
    for exchange in found.values():
        again = Exchange.from_json(json.loads(json.dumps(exchange.to_json())))
        assert again == exchange
        outcome = converse(exchange.device, exchange.cloud, NETWORKS["3G"], 0.0, "", speeds)
        assert not outcome.failed, exchange.method
        assert outcome.texts[-1][1] == exchange.final
        assert exchange.final in exchange.right


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], found: dict[str, Exchange]) -> None:
    out = tmp_path / "rivals"
    command = ["run", "rivals", "-o", str(out), "--prompts", "1", "--shots", "1", "--links", "LTE", "SBD"]
    command += ["--losses", "0", "0.1", "--repeats", "2", "--threads", "1"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "Over LTE" in printed
    assert "Over SBD" in printed
    tables = json.loads((out / "tables.json").read_text())["tables"]
    assert list(tables) == ["methods", "LTE", "SBD"]
    own = [row for row in tables["LTE"]["rows"] if row["method"] == methods.shot(1)]
    assert [row["right, less the reference"]["mean"] for row in own] == [0]
    assert (out / "rivals.png").read_bytes().startswith(b"\x89PNG")
    before = (out / "tables.json").read_text()
    assert main(command) == 0, "from the stored runs"
    assert (out / "tables.json").read_text() == before
    assert main([*command, "--shots", "2"]) == 2
    assert "another shots" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--losses", "1"], "--losses: expected shares"),
        (["--prompts", "0"], "expected at least 1"),
        (["--cloud-ms", "-1"], "milliseconds: expected 0"),
        (["--finish", "never"], "rule: expected quota"),
    ],
)
def test_wrong_options_are_refused(
    wrong: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "rivals", "-o", str(tmp_path), *wrong]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# Figures.

SPEEDS = Speeds(cloud=1.0, edge=0.1, device=0.5, token=0.0)


def made(name: str, passes: int, right: bool) -> Exchange:
    device: Program = [Send(100, REQUEST), Receive(), Write((1, 2), (0, 1))]
    cloud: Program = [Receive(), Work(CLOUD, passes), Work(EDGE, 2), Send(10, RESPONSE)]
    return Exchange(name, device, cloud, {(1, 2): right})


def raced(exchanges: dict[str, list[Exchange]], losses: Sequence[float] = (0.0,)) -> dict[str, Answers]:
    """The answers of each method over SBD."""
    rows = race(exchanges, Race([NETWORKS["SBD"]], losses, 3, SPEEDS))
    return {method: group for (method,), group in Answers(list(rows)).groups("method")}


def test_a_difference_is_paired_by_question_and_can_go_either_way() -> None:
    questions = {str(n): [made("a", 1, n % 2 == 0), made("b", 4, n % 4 == 0)] for n in range(40)}
    found = raced(questions)
    right, last = (found["b"].less(found["a"], metric) for metric in ("right", "last"))
    assert right is not None
    assert last is not None
    assert (right.summary.mean, right.verdict) == (-0.25, "lower")
    assert (last.summary.mean, last.verdict) == (pytest.approx(3.0), "higher")
    turned = raced({str(n): [made("a", 4, n % 4 == 0), made("b", 1, n % 2 == 0)] for n in range(40)})
    difference = turned["b"].less(turned["a"], "right")
    assert difference is not None
    assert difference.verdict == "higher"


OPTIONS = RivalOptions(links=("SBD",), losses=(0.0, 0.99999), repeats=3, shots=(1,))
ABOUT = About(parameters=1_000_000, edges={"edge": 10_000}, own=OPTIONS)


def test_what_is_lost_for_good_is_neither_right_nor_in_time() -> None:
    found = raced({"q": [made("a", 1, True)]}, [0.0, 0.99999])["a"]
    assert (found.where(loss=0.0).values("success"), found.where(loss=0.99999).values("success")) == (
        [1],
        [0],
    )
    assert found.where(loss=0.99999).values("right") == [0]
    assert found.where(loss=0.99999).values("last") == []


def test_the_tables_of_exchanges_made_by_hand() -> None:
    own, other = made(methods.shot(1), 1, True), made("b", 4, False)
    records = [{"id": str(n), "exchanges": [own.to_json(), other.to_json()]} for n in range(3)]
    every, network = tables(records, ABOUT)
    assert [row["cloud passes x parameters, millions"] for row in every.rows] == [1.0, 4.0]
    first, second = network.rows
    assert (first["bytes up"], first["bytes down"], first["last token, s"]) == (100, 10, 40.46)
    assert (second["last token, s"], second["at 100% loss"], second["right"]) == (40.59, None, 0.0)
    assert second["last token, less the reference"] is None, "at the greatest loss nothing comes"


def test_the_curve_rises_when_the_answer_is_there() -> None:
    device: Program = [Write((1,), (2,)), Work(DEVICE, 1), Write((3,), (2,))]
    exchange = Exchange("a", device, [], {(1,): True, (3,): False})
    outcome = converse(exchange.device, exchange.cloud, NETWORKS["SBD"], 0.0, "", SPEEDS)
    assert right_at(outcome, exchange, [0.0, 0.99, 1.0, 1.4, 1.5, 2.5]) == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert figures_of(outcome, exchange)["right"] == 0.0
    assert figures_of(outcome, exchange)["first"] == 1.0
    assert figures_of(outcome, exchange)["standing"] == 2.5


def test_methods_share_their_losses() -> None:
    """A message of the same size at the same time is lost for both or for neither."""
    questions = {str(n): [made("a", 1, True), made("b", 1, True)] for n in range(5)}
    found = raced(questions, [0.3])
    assert found["a"].values("last") == found["b"].values("last")
    setting = Race([NETWORKS["SBD"]], [0.3], 3, SPEEDS)
    _, shown = curves(questions, setting, NETWORKS["SBD"], 0.3)
    assert shown["a"] == shown["b"]
    assert shown["a"][0] == 0
    assert shown["a"][-1] == 1
