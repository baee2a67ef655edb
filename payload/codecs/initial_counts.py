"""Initial counts of codec predictive, in sixteenths of an occurrence; a part of the wire format.

Made by `python -m lab.formats.count_codes` from right answers to 400 training
prompts of the tiny pair; INITIAL_FLAGS[0], INITIAL_UNRANKED and INITIAL_MORE are estimates. See
`adaptive_model.InitialCounts`.
"""

STEP = 16
"""Added to the count of a value that is coded."""

# fmt: off
INITIAL_STABLE = (2047, 1)
INITIAL_MODES = (
    ((18, 1, 1, 490, 1, 3), (17, 1, 1, 484, 1, 11)),
    ((143, 1, 1833, 31, 41, 1), (11, 1, 441, 2, 58, 1)),
    ((595, 1120, 145, 20, 161, 8), (147, 183, 47, 54, 80, 1)),
    ((315, 151, 26, 9, 7, 5), (313, 134, 1, 1, 63, 1)),
    ((1788, 145, 1, 38, 77, 1), (372, 55, 4, 1, 81, 1)),
    ((2042, 5, 1, 1, 1, 1), (2037, 11, 1, 1, 1, 1)),
)
INITIAL_RANKS = (
    (
        (1, 262, 208, 27, 12, 1, 1, 1),
        (1, 1024, 996, 26, 1, 1, 1, 1),
        (1, 299, 59, 101, 53, 1, 1, 1),
    ),
    (
        (806, 608, 414, 220, 1, 1, 1, 1),
        (251, 247, 9, 5, 1, 1, 1, 1),
        (136, 279, 62, 33, 1, 1, 1, 1),
    ),
    (
        (1433, 562, 29, 15, 10, 1, 1, 1),
        (345, 161, 2, 3, 1, 1, 1, 1),
        (354, 43, 2, 111, 1, 1, 1, 1),
    ),
    (
        (336, 29, 72, 18, 2, 53, 1, 1),
        (134, 122, 165, 73, 8, 9, 1, 1),
        (120, 106, 217, 67, 1, 2, 1, 1),
    ),
)
INITIAL_FLAGS = (
    ((8, 4), (8, 4), (8, 4), (8, 4), (8, 4), (8, 4)),
    ((1, 128), (1, 128), (1, 128), (1, 127), (2048, 1), (2048, 1)),
)
INITIAL_UNRANKED = (8, 504)
INITIAL_MORE = (16, 48)
# fmt: on
