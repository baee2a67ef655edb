"""First counts of codec predictive, in sixteenths of an occurrence; a part of the wire format.

Made by `python -m cloud_anchor.tiny.count_habits` from right answers to 120 training prompts
of the tiny pair; FIRST_FLAGS[0], FIRST_GUESSED and FIRST_MORE are guesses. See `habits`.
"""

STEP = 16
"""What one occurrence adds to its count."""

# fmt: off
CLEAR = (2045, 3)
FIRST_WAYS = (
    ((1, 1, 1, 512, 1, 1), (1, 1, 1, 512, 1, 1)),
    ((53, 1, 406, 19, 34, 1), (42, 1, 456, 1, 14, 1)),
    ((123, 199, 64, 23, 98, 5), (133, 154, 55, 15, 154, 1)),
    ((299, 139, 16, 21, 37, 1), (296, 151, 9, 1, 55, 1)),
    ((1758, 178, 4, 27, 80, 1), (416, 51, 1, 1, 39, 5)),
    ((2041, 2, 1, 1, 4, 1), (1941, 1, 1, 1, 107, 1)),
)
FIRST_RANKS = (
    (
        (2, 282, 200, 17, 6, 2, 2, 2),
        (1, 296, 211, 5, 1, 1, 1, 1),
        (1, 259, 180, 55, 18, 1, 1, 1),
    ),
    (
        (258, 126, 81, 44, 1, 2, 1, 1),
        (337, 155, 7, 4, 1, 9, 1, 1),
        (330, 97, 50, 28, 1, 4, 1, 1),
    ),
    (
        (272, 165, 68, 1, 1, 2, 1, 1),
        (218, 112, 174, 1, 1, 3, 1, 1),
        (266, 141, 46, 3, 3, 46, 3, 3),
    ),
    (
        (114, 139, 24, 58, 75, 98, 2, 1),
        (49, 49, 95, 102, 76, 131, 11, 1),
        (53, 54, 88, 171, 129, 16, 1, 1),
    ),
)
FIRST_FLAGS = (
    ((8, 4), (8, 4), (8, 4), (8, 4), (8, 4), (8, 4)),
    ((1, 1), (1, 128), (1, 128), (1, 127), (2048, 1), (2047, 1)),
)
FIRST_GUESSED = (8, 504)
FIRST_MORE = (16, 48)
# fmt: on
