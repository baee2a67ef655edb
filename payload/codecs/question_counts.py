"""Initial counts of a question's text in codec predictive; a part of the wire format.

Made by `python -m lab.formats.count_codes --data` from
90 questions of gsm8k, humaneval, mmlu, as Smollm2 135M 8k Lc100K Mix1 Ep2 predicts them.
See `adaptive_model.InitialCounts`; what is not here is that of `initial_counts`.
"""

MADE_OF = "90 questions of gsm8k, humaneval, mmlu, as Smollm2 135M 8k Lc100K Mix1 Ep2 predicts them"

# fmt: off
QUESTION_STABLE = (2039, 9)
QUESTION_MODES = (
    ((1, 1, 1, 410, 1, 102), (1, 1, 1, 380, 1, 132)),
    ((63, 1, 383, 36, 1, 29), (256, 1, 1567, 114, 17, 93)),
    ((636, 669, 289, 341, 93, 20), (570, 660, 346, 422, 34, 16)),
    ((1296, 557, 112, 83, 1, 1), (1189, 640, 28, 135, 48, 8)),
    ((1700, 272, 1, 65, 4, 6), (1465, 379, 102, 95, 1, 7)),
    ((2035, 7, 1, 1, 6, 1), (501, 7, 2, 1, 1, 2)),
)
QUESTION_RANKS = (
    (
        (1, 265, 198, 38, 10, 1, 1, 1),
        (1, 1115, 836, 97, 1, 1, 1, 1),
        (1, 202, 148, 103, 59, 1, 1, 1),
    ),
    (
        (600, 394, 315, 226, 223, 151, 81, 59),
        (1077, 964, 2, 2, 1, 1, 1, 1),
        (42, 86, 112, 265, 3, 2, 1, 1),
    ),
    (
        (97, 99, 80, 62, 87, 86, 1, 1),
        (727, 481, 335, 169, 203, 69, 63, 1),
        (131, 102, 112, 85, 35, 21, 26, 1),
    ),
    (
        (6, 9, 223, 218, 2, 46, 6, 2),
        (9, 9, 302, 186, 1, 1, 5, 1),
        (7, 114, 165, 160, 2, 5, 58, 2),
    ),
)
# fmt: on
