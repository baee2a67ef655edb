"""Word F1, by which an answer is compared with that of the full run."""

from __future__ import annotations

from collections import Counter


def word_f1(text: str, reference: str) -> float:
    """Multiset F1 of lower-cased words split at white space, 0 to 1 (paper section 3.2).

    The harmonic mean of precision and recall of the text's words against the reference's. Ignores order. Two
    empty texts are equal.
    """
    found, wanted = Counter(text.lower().split()), Counter(reference.lower().split())
    if not found or not wanted:
        return float(found == wanted)
    common = (found & wanted).total()
    if not common:
        return 0.0
    # In the published figures' order of operations.
    precision, recall = common / found.total(), common / wanted.total()
    return 2 * precision * recall / (precision + recall)
