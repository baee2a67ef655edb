"""Reading a form on the device: equal to plain passes, and what the cloud is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime import decide as command
from edge_runtime import decisions
from edge_runtime.commands import ALONE
from edge_runtime.decisions import CLOUD, DEVICE, HOPELESS, Calibration
from edge_runtime.errors import FormError
from edge_runtime.form import Form, Slot
from edge_runtime.runtime import EdgeRuntime
from tests.edge_runtime.client.chat_servers import chat_server, fails
from tests.shipped import TINY_BUNDLE

FORM = Form.of(
    {
        "type": "object",
        "properties": {
            "river": {"enum": ["the Elbe", "the Elbe and more", "a lake"]},
            "small": {"type": "boolean"},
            "many": {"type": "integer", "minimum": 0, "maximum": 12},
        },
    }
)
TEXT = "Which river?"


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)


def test_scores_are_those_of_whole_passes(edge: EdgeRuntime) -> None:
    found = edge.scores(FORM, FORM.question(TEXT))
    encode, ids = edge.bundle.tokenizer.encode, edge.prompt_ids(FORM.question(TEXT))
    for at, slot in enumerate(FORM.slots):
        ids, behind = ids + encode(FORM.literals[at]), FORM.literals[at + 1]
        tokens = [encode(option) for option in slot.options]
        begins = any(a != b and b[: len(a)] == a for a in tokens for b in tokens)
        ends = behind[:1] if begins else ""  # an option that begins another one has to end
        plain = []
        for option in slot.options:
            branch = encode(option + ends)
            engine = edge.engine.fork()
            engine.rewind(0)
            logits = engine.append([*ids, *branch], range(len(ids) - 1, len(ids) + len(branch) - 1)).astype(
                float
            )
            rows = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            plain.append(sum(row[id_] for row, id_ in zip(rows, branch, strict=True)))
        whole = np.array(plain) > max(plain) - HOPELESS
        assert found[at][whole] == pytest.approx(np.array(plain)[whole], abs=1e-3)
        assert (found[at][~whole] < max(plain) - HOPELESS).all() or (found[at][~whole] < max(plain)).all()
        ids = ids + encode(slot.options[int(found[at].argmax())])


def test_the_questions_below_the_threshold_are_asked_and_no_others(edge: EdgeRuntime) -> None:
    asked: list[list[int]] = []

    class Cloud:
        def decide(self, form: Form, text: str, slots: Sequence[int]) -> Mapping[int, Sequence[float]]:
            assert (form, text) == (FORM, TEXT)
            asked.append(list(slots))
            return {at: [1.0] + [0.0] * (len(form.slots[at].options) - 1) for at in slots}

    alone = edge.decide(TEXT, FORM)
    assert {choice.source for choice in alone.choices} == {DEVICE}
    threshold = sorted(choice.probability for choice in alone.choices)[1]
    found = edge.decide(TEXT, FORM, [Calibration(threshold=threshold)] * 3, Cloud())
    unsure = [at for at, choice in enumerate(alone.choices) if choice.probability < threshold]
    assert asked == [unsure]
    assert [at for at, choice in enumerate(found.choices) if choice.source == CLOUD] == unsure
    assert edge.decide(TEXT, FORM, [Calibration(threshold=0)] * 3, Cloud()).value == alone.value
    assert len(asked) == 1


def test_an_empty_text_has_no_preference_once_the_prior_is_taken_off(edge: EdgeRuntime) -> None:
    for choice in edge.decide("", FORM).choices:
        assert choice.probabilities == pytest.approx(
            [1 / len(choice.slot.options)] * len(choice.slot.options)
        )


def test_a_fit_finds_temperature_and_threshold() -> None:
    random = np.random.default_rng(0)
    rows = []
    for _ in range(600):
        sure = random.normal(0, 2, 3)
        exact = np.exp(sure) / np.exp(sure).sum()
        rows.append((4 * sure, int(random.choice(3, p=exact))))  # four times as sure as right
    (fitted,) = decisions.fit([rows], accuracy=0.9)
    assert 3 < fitted.temperature < 5.5
    kept = [
        fitted.probabilities(s).argmax() == r
        for s, r in rows
        if fitted.probabilities(s).max() >= fitted.threshold
    ]
    assert np.mean(kept) >= 0.9
    assert len(kept) > 50
    with pytest.raises(FormError):
        decisions.fit([rows, rows[:5]])


def test_each_question_has_a_bias_for_its_options_and_a_cloud_has_its_own() -> None:
    random = np.random.default_rng(1)
    rows = []
    for _ in range(400):
        scores = random.normal(0, 2, 3)
        exact = np.exp(scores / 2 + [0, 0, 2])  # of a reader that is too sure, and overlooks the last option
        rows.append((scores, int(random.choice(3, p=exact / exact.sum()))))
    biased, same = decisions.fit([rows, rows], accuracy=0.7)
    assert biased == same
    plain = Calibration(biased.temperature)
    assert decisions.loss(rows, biased) < decisions.loss(rows, plain) - 0.1
    assert 1.5 < biased.temperature < 2.7
    assert biased.bias[2] - biased.bias[0] == pytest.approx(2, abs=0.5)
    told = np.mean([biased.probabilities(s) for s, _ in rows], axis=0)
    assert told == pytest.approx(np.bincount([r for _, r in rows]) / len(rows), abs=0.01)

    class Cloud:
        def decide(self, form: Form, text: str, slots: Sequence[int]) -> Mapping[int, Sequence[float]]:
            return {at: [0.2, 0.3, 0.5] for at in slots}

    three = Form(
        ("", "", "."), (Slot("a", ("x", "y", "z"), (0, 1, 2)), Slot("b", ("x", "y", "z"), (0, 1, 2)))
    )
    unread, asks = [np.zeros(3)] * 2, [Calibration(threshold=1)] * 2
    found = decisions.decide(TEXT, three, unread, asks, Cloud(), [same, Calibration()]).choices
    assert found[0].probabilities == pytest.approx(same.probabilities(decisions.said([0.2, 0.3, 0.5])))
    assert found[1].probabilities == pytest.approx([0.2, 0.3, 0.5])


def test_the_command_asks_a_chat_server_and_calibrates_it_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, schema, rows = tmp_path / "tiny", tmp_path / "form.json", tmp_path / "rows.jsonl"
    bundle.symlink_to(TINY_BUNDLE)
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "boolean"}}}))
    labels = [json.dumps({"text": f"Text {at}", "value": {"a": at % 5 == 0}}) for at in range(25)]
    rows.write_text("\n".join(labels))
    listed = [{"token": "Yes", "logprob": -0.01}, {"token": "no", "logprob": -4.6}]
    content = {"choices": [{"logprobs": {"content": [{"top_logprobs": listed}]}}]}
    common = ["--schema", str(schema), "--edge", str(bundle), "--variant", "fp32"]
    with chat_server(fails(200, json.dumps(content).encode())) as (address, asked):
        common += ["--backend", address, "--model", "some"]
        assert command.main([*common, "--text", "Where?", "--threshold", "1"]) == 0
        assert "true" in (before := capsys.readouterr().out)
        assert "cloud" in before
        assert command.main([*common, "--calibrate", str(rows), "--accuracy", "0.9"]) == 0
        assert capsys.readouterr().out.count("25 rows") == 2
        assert command.main([*common, "--text", "Where?", "--threshold", "1"]) == 0
        assert "false" in capsys.readouterr().out  # of the rows one in five is true, whatever the server says
    assert len(asked) == 27


def test_the_command_decides_calibrates_and_uses_what_it_has_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "tiny"
    bundle.symlink_to(TINY_BUNDLE)
    schema, rows = tmp_path / "form.json", tmp_path / "rows.jsonl"
    schema.write_text(
        json.dumps({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}}})
    )
    row = {"text": "Where?", "value": {"a": True, "b": "y"}}
    rows.write_text("\n".join([json.dumps(row)] * 25))
    common = ["--schema", str(schema), "--edge", str(bundle), "--variant", "fp32"]
    assert command.main([*common, "--text", "Where?", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert set(first["value"]) == {"a", "b"}
    assert command.main([*common, "--calibrate", str(rows)]) == 0
    assert (tmp_path / "tiny.decisions.json").is_file()
    capsys.readouterr()
    assert command.main([*common, "--text", "Where?", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["choices"] != first["choices"]
    nobody = ["--url", "http://127.0.0.1:9", "--timeout", "0.5", "--threshold", "1", "--text", "Where?"]
    assert command.main([*common, *nobody]) == ALONE
    assert "device" in capsys.readouterr().out
    rows.write_text('{"text": "x"}')
    assert command.main([*common, "--calibrate", str(rows)]) == 2
    with pytest.raises(SystemExit):
        command.main(common)
    schema.write_text('{"properties": {"a": {"type": "string"}}}')
    assert command.main([*common, "--text", "x"]) == 2
