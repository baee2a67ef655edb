"""Reading pinned canvases: equal to single passes, and the service's path of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloud_anchor.decide import FormQuestion, probabilities, read_forms
from cloud_anchor.pipeline import Pipeline
from edge_runtime.form import Form, Slot

SCHEMA = {
    "type": "object",
    "properties": {"who": {"enum": ["a fox", "the two rivers", "nobody"]}, "small": {"type": "boolean"}},
}
FORM = Form.of(SCHEMA)


def question(pipeline: Pipeline, text: str = "Who?") -> FormQuestion:
    return FormQuestion.of(pipeline, FORM, FORM.question(text))


def test_an_option_counts_by_the_mean_of_its_tokens_in_a_slot_of_its_length(pipeline: Pipeline) -> None:
    asked, model = question(pipeline), pipeline.masked_model
    (scores,) = read_forms(model, [asked])
    for slot, found in enumerate(scores):
        for option, score in zip(asked.options[slot], found, strict=True):
            ids, begins = asked.canvas(model.mask_id, slot, len(option))
            canvas = torch.tensor([[*ids, min(model.eos_ids)]])
            wanted = torch.zeros_like(canvas, dtype=torch.bool)
            wanted[0, begins : begins + len(option)] = True
            logits = model.logits(model.batch([asked.prompt], canvas.shape[1]), canvas, wanted)
            rows = torch.log_softmax(model.without_unusable(logits.float()), 1)
            plain = np.mean([float(row[id_]) for row, id_ in zip(rows, option, strict=True)])
            assert score == pytest.approx(plain, abs=1e-3)


def test_questions_of_one_batch_do_not_change_one_another(pipeline: Pipeline) -> None:
    model = pipeline.masked_model
    texts = ["Who?", "A longer text about a fox and two rivers.", ""]
    long = Form(("It is", "."), (Slot("who", (" a", " the two rivers" * 20), (0, 1)),))
    short = Form(("It is", "."), (Slot("who", (" a", " b"), (0, 1)),))
    apart = [FormQuestion.of(pipeline, form, "?") for form in (long, short)]
    for asked, found in zip(apart, read_forms(model, apart), strict=True):
        assert found[0] == pytest.approx(read_forms(model, [asked])[0][0], abs=1e-3)
    together = read_forms(model, [question(pipeline, text) for text in texts])
    for text, found in zip(texts, together, strict=True):
        (alone,) = read_forms(model, [question(pipeline, text)])
        for a, b in zip(alone, found, strict=True):
            assert a == pytest.approx(b, abs=1e-3)


def test_further_passes_fix_the_surest_answer_first(pipeline: Pipeline) -> None:
    model = pipeline.masked_model
    asked = question(pipeline)
    (once,) = read_forms(model, [question(pipeline)])
    (twice,) = read_forms(model, [asked], passes=2)
    ((slot, index),) = asked.fixed.items()
    shares = [max(found) for found in probabilities(pipeline, FORM, FORM.question("Who?")).values()]
    assert slot == int(np.argmax(shares))
    assert index == int(once[slot].argmax())
    assert twice[slot] == pytest.approx(once[slot])


def test_the_service_gives_what_the_model_reads(pipeline: Pipeline, client: object) -> None:
    from edge_runtime.client.client import Client
    from edge_runtime.errors import CloudRefusedError

    service = Client(f"http://127.0.0.1:{client.port}", timeout=60)  # type: ignore[attr-defined]
    exact = probabilities(pipeline, FORM, FORM.question("Who?"))
    found = service.decide(FORM, "Who?", [0, 1])
    for slot, read in found.items():
        assert sum(p * np.log(p / q) for p, q in zip(exact[slot], read, strict=True)) < 0.02
    assert list(service.decide(FORM, "Who?", [1])) == [1]
    with pytest.raises(CloudRefusedError):
        service.decide(FORM, "x" * 20_000, [0])
    with pytest.raises(CloudRefusedError):
        service.decide(Form(FORM.literals, FORM.slots), "Who?", [0])
