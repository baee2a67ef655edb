"""A block drafter: a small masked model that writes the next K tokens in one pass (DFlash, arXiv 2602.06036).

Responsible for drafts: which tokens the masked graph runs, and for keeping the text that it has run. Not
responsible for the draft length that pays (see `speculate`), acceptance (see `acceptance`) or training (see
`lab.drafting`).

The graph runs a chunk whose last K tokens are the *block*: the text's last token and K - 1 masks. They see
the whole text and each other; the tokens before them, which are text, see what is before them. Row i of the
block predicts the token i + 1 places after the text's last one. The keys and values of the block are
overwritten by the next draft, those of the text are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.manifest import BlockForm
from edge_runtime.decode.forced import common_prefix
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import BundleContractError, UsageError
from payload import Contract

CHUNK = 512
"""Most tokens of one pass, the block included where it is smaller; it bounds the pass's memory."""


class BlockDrafter:
    """Drafts at most `form.block` tokens a call, in one pass. Its engine is its own.

    engine: runs the masked graph (see above); its context holds text and block.
    vocab:  number of the target's logits. Ids beyond it are never drafted, nor is the mask.
    passes: calls of the graph so far.
    """

    def __init__(self, engine: Engine, form: BlockForm, vocab: int) -> None:
        self.engine = engine
        self.form = form
        self.passes = 0
        self._vocab = vocab
        self._masks = [form.mask] * (form.block - 1)

    @classmethod
    def open(
        cls,
        path: str | Path,
        contract: Contract,
        vocab: int,
        *,
        variant: str | None = None,
        context: int | None = None,
        threads: int | None = None,
    ) -> BlockDrafter:
        """The drafter in a bundle folder, for a target of this contract and number of logits.

        Raises UsageError for a bundle of another kind of model, BundleContractError for one of another
        vocabulary, and what `Bundle.open` and `OrtEngine.open` raise.
        """
        bundle = Bundle.open(path, variant)
        form = bundle.manifest.drafter
        if form is None:
            raise UsageError(
                f"drafter {path}: expected the bundle of a block drafter (lab.drafting, "
                "convert), found one of a model that answers. Name it with --edge instead."
            )
        if bundle.contract != contract:
            raise BundleContractError(
                f"drafter {path}: expected the contract of the model that it drafts for ({contract}), found "
                f"{bundle.contract}. Train one on that model's tokenizer."
            )
        rows = bundle.manifest.model.vocab_size
        if rows < vocab or form.mask >= rows:
            raise UsageError(
                f"drafter {path}: expected an embedding of at least {max(vocab, form.mask + 1)} rows, as the "
                f"model that it drafts for has, found {rows}. Train one for that model."
            )
        context = None if context is None else min(bundle.context, context + form.block)
        return cls(OrtEngine.open(bundle, context=context, threads=threads), form, vocab)

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
        """At most `wanted` tokens after the text; none where text and block exceed the drafter's context."""
        wanted = min(wanted, self.form.block)
        if wanted < 1 or not text or len(text) - 1 + self.form.block > self.engine.context:
            return ()
        known = text[:-1]
        self.engine.rewind(common_prefix(self.engine.tokens, known))
        block = [text[-1], *self._masks]
        room = max(1, CHUNK - len(block))
        while len(known) - self.engine.length > room:  # the last tokens of every chunk are a block
            self._run(known, self.engine.length + room, block, 0)
        logits = self._run(known, len(known), block, wanted)[:, : self._vocab]
        if self.form.mask < self._vocab:
            logits[:, self.form.mask] = float("-inf")
        return [int(token) for token in logits.argmax(-1)]

    def observe(self, right: bool) -> None:
        """Nothing: what pays is decided by `Speculator`."""

    def _run(self, known: Sequence[int], end: int, block: Sequence[int], wanted: int) -> Logits:
        """One pass over the text up to `end` with the block behind it; the logits of its first rows."""
        pending = known[self.engine.length : end]
        rows = range(len(pending), len(pending) + wanted)
        logits = self.engine.append([*pending, *block], rows)
        self.passes += 1
        self.engine.rewind(end)
        return logits
