"""Training of `model.bin`, and its cross-validation: `python -m lab.formats.train_token_model`.

Responsible for the texts, the folds and the features, which it records from the token model. Word statistics
are counts (`word_statistics`); the weights are fitted (`fit`) so that the tokens of the traces take the
fewest bits, always under statistics from which the trace at hand was left out. `--measure` codes every trace
with statistics and weights made without its fold. Not responsible for coding. Needs tokenizers.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.cli import option, run_options
from common.files import read_text, write_whole
from lab.formats.codec_bench import FULL, anchors_of, summary
from lab.formats.fit import Instance, fit
from lab.formats.word_statistics import Text, count_words, write_model
from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, full_answer, read_traces
from payload.codecs import compact
from payload.codecs.prior import END, MODEL_FILE, START, WEIGHT_SIZES, Prior, Weights, Words
from payload.codecs.range_coder import Coder
from payload.codecs.token_model import TokenModel
from payload.header import HEADER_BYTES

EPILOG = """example:
  python -m lab.formats.train_token_model --traces ../shared/traces/dream7b_dev.jsonl \\
      --fills ../shared/traces/qwen05_fill_dev.jsonl --prompts ../shared/prompts
"""

TRACE_WEIGHT, FILL_WEIGHT, PROMPT_WEIGHT = 6.0, 3.0, 1.0
SEED = 1
MEASURED = ("0.1", "0.25", FULL)
ZERO = Weights(**{name: (0,) * size for name, size in WEIGHT_SIZES.items()})


class TextSource(NamedTuple):
    """A text and the name of its trace: both are left out together."""

    name: str | None
    text: Text


class Recorder(TokenModel):
    """A token model that records the features of every candidate of each token it codes."""

    def __init__(self, prior: Prior, vocab_size: int, prompt_ids: Sequence[int]) -> None:
        self.instances: list[Instance] = []
        self.importance = 1.0
        self._kind: dict[int, tuple[int, ...]] = {
            token: (known, False, 0, 0, 0) for token, known in prior.words.classes.items()
        }
        self._kinds: Counter[tuple[int, ...]] = Counter(self._kind.values())
        super().__init__(prior, vocab_size, prompt_ids)

    def _update_slot(self, token: int) -> None:
        super()._update_slot(token)
        kind = self.features(token)
        self._kinds[self._kind.get(token, kind)] -= token in self._kind
        self._kinds[kind] += 1
        self._kind[token] = kind

    def code(self, coder: Coder, token: int, *, may_end: bool) -> int:
        candidates, longest = self.context_candidates()
        if not may_end:
            del candidates[0]
        kinds = {kind: count for kind, count in self._kinds.items() if count}
        looks = []
        for each in candidates:
            kind = self._kind.get(each.id)
            if kind is not None:
                kinds[kind] -= 1
            looks.append((each, self.features(each.id) if each.id != END else None))
        names = [each.id for each in candidates]
        self.instances.append(
            Instance(
                kinds=kinds,
                candidates=looks,
                target=names.index(token) if token in names else None,
                slot=self._kind.get(token) if token not in names else None,
                token=token,
                age=min(6, (self._coded + 1).bit_length()),
                escape=self.escape_class(longest),
                importance=self.importance,
            )
        )
        self._coded += 1
        if token != END:
            self.push(token)
        return token


def record(trace: Trace, prompt_ids: Sequence[int], prior: Prior, vocab_size: int) -> list[Instance]:
    """Instances of a trace's anchors at 25% of the steps; those of 10% have the greatest weight."""
    model = Recorder(prior, vocab_size, prompt_ids)
    pairs = trace.anchors["0.25"]
    whole = len(pairs) == trace.length
    coder = Coder(None)
    early = {position for position, _ in trace.anchors["0.1"]}
    at = 0
    for position, token in pairs:
        if position > at:
            model.gap()
        model.importance = 1.0 if position in early else 0.25
        model.code(coder, token, may_end=whole)
        at = position + 1
    if whole:
        model.code(coder, END, may_end=True)
    return model.instances


def sources(
    traces: list[Trace], fills: Sequence[Path], prompts: Path | None, tokenizer: TraceTokenizer
) -> Iterator[TextSource]:
    """Every text for the word statistics."""
    for trace in traces:
        ids = [START, *full_answer(trace, tokenizer)]
        yield TextSource(trace.name, Text(ids if trace.output_cut else [*ids, END], TRACE_WEIGHT))
    for path in fills:
        for line in read_text(path).splitlines():
            row = json.loads(line)
            name = f"{row['benchmark']}/{row['index']}"
            alone = [START, *tokenizer.encode(row["alone_text"]), END]
            yield TextSource(name, Text(alone, FILL_WEIGHT))
            for key in ("sf_0.1", "sf_0.25"):
                ids = [t if t < tokenizer.contract.vocab_size else END for t in row[key]["real_tokens"]]
                ids = ids[: ids.index(END) + 1] if END in ids else ids
                yield TextSource(name, Text([START, *ids], FILL_WEIGHT / 2))
    for text in _problems(prompts) if prompts else ():
        yield TextSource(None, Text(tokenizer.encode(text), PROMPT_WEIGHT))


def _problems(folder: Path) -> Iterator[str]:
    """Worked solutions, functions and questions of the public test sets' samples."""
    for line in read_text(folder / "gsm8k.jsonl").splitlines():
        yield re.sub(r"<<.*?>>", "", json.loads(line)["answer"].split("\n####")[0])
    for line in read_text(folder / "humaneval.jsonl").splitlines():
        row = json.loads(line)
        yield "```python\n" + row["prompt"] + row["canonical_solution"] + "```"
    for line in read_text(folder / "mmlu.jsonl").splitlines():
        row = json.loads(line)
        yield row["question"]
        yield row["choices"][0]


class Training:
    """The runs and texts of one training, in folds."""

    def __init__(
        self, traces: list[Trace], texts: Sequence[TextSource], tokenizer: TraceTokenizer, folds: int
    ) -> None:
        self.traces, self.texts, self.tokenizer, self.folds = traces, texts, tokenizer, folds
        self.size = tokenizer.contract.vocab_size

    def words_without(self, names: Set[str]) -> Words:
        """Statistics of all texts but those of these names."""
        texts = (source.text for source in self.texts if source.name not in names)
        return count_words(texts, self.tokenizer.piece)

    def parts(self) -> list[list[Trace]]:
        """The runs by fold."""
        order = list(self.traces)
        random.Random(SEED).shuffle(order)
        return [order[at :: self.folds] for at in range(self.folds)]

    def recorded(self, part: Sequence[Trace], words: Words) -> list[Instance]:
        """The tokens of some runs under these statistics, with their prompts and, counting less, without."""
        prior, found = Prior(ZERO, words), []
        for trace in part:
            for prompt, importance in ((self.tokenizer.encode(trace.prompt), 1.0), ([], 0.4)):
                found += weighed(record(trace, prompt, prior, self.size), importance)
        print(f"{len(found)} tokens recorded", file=sys.stderr)
        return found

    def measured(self) -> Iterator[str]:
        """The cost of every run under statistics and weights made without its fold, as lines."""
        parts = self.parts()
        words = [self.words_without({trace.name for trace in part}) for part in parts]
        recorded = [self.recorded(part, own) for part, own in zip(parts, words, strict=True)]
        rows: dict[tuple[str, bool], list[int]] = {}
        for number, part in enumerate(parts):
            seen = [each for at, found in enumerate(recorded) if at != number for each in found]
            prior = Prior(fit(seen, f"without fold {number + 1}"), words[number])
            for trace in part:
                for fraction in MEASURED:
                    anchors = anchors_of(trace, fraction, self.tokenizer)
                    for known in (True, False):
                        ids = self.tokenizer.encode(trace.prompt) if known else []
                        size = HEADER_BYTES + len(compact.encode(anchors, ids, None, prior))
                        rows.setdefault((fraction, known), []).append(size)
        for (fraction, known), sizes in rows.items():
            prompt = "known" if known else "unknown"
            yield f"held out, at {fraction}, prompt {prompt}: {_figures(sizes)} bytes per payload"

    def model(self) -> bytes:
        """The model file: weights without and with statistics, fitted to every fold, and the statistics."""
        parts = self.parts()
        plain = [each for part in parts for each in self.recorded(part, Words())]
        trained = [
            each
            for part in parts
            for each in self.recorded(part, self.words_without({trace.name for trace in part}))
        ]
        return write_model(self.size, fit(plain, "all"), fit(trained, "all"), self.words_without(set()))


def _figures(sizes: Sequence[int]) -> str:
    row = summary(sizes)
    return f"mean {row['mean']:.2f}, median {row['median']:.0f}, 95% below {row['p95']:.0f}"


def weighed(instances: list[Instance], importance: float) -> list[Instance]:
    return [instance._replace(importance=instance.importance * importance) for instance in instances]


@dataclass(frozen=True)
class TrainOptions:
    """Train the model file of codec compact."""

    traces: Path = option(None, "JSONL of diffusion runs", required=True)
    fills: tuple[Path, ...] = option((), "JSONL of fills of those runs")
    prompts: Path | None = option(None, "folder with gsm8k.jsonl, humaneval.jsonl, mmlu.jsonl")
    tokenizer: Path | None = option(None, "tokenizer.json[.gz]; default: beside the traces' folder")
    folds: int = option(5, "folds of the cross-validation")
    measure: bool = option(False, "only print the cost of held-out traces")
    output: Path = option(MODEL_FILE, "model file (payload/model.bin)", flags=("-o", "--output"))


def run(options: TrainOptions) -> None:
    tokenizer = TraceTokenizer(options.tokenizer or options.traces.parent / DEFAULT_TOKENIZER)
    traces = read_traces(options.traces)
    texts = list(sources(traces, options.fills, options.prompts, tokenizer))
    training = Training(traces, texts, tokenizer, options.folds)
    if options.measure:
        print(*training.measured(), sep="\n")
    else:
        data = training.model()
        write_whole(options.output, data)
        print(f"{options.output}: {len(data)} bytes")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab.formats.train_token_model", run, TrainOptions, argv, EPILOG)


if __name__ == "__main__":
    sys.exit(main())
