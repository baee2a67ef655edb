"""The questions on which verification compares the original and the converted model."""

DEFAULT_PROMPTS = (
    "A ferry leaves every 40 minutes from 6:20 in the morning. How many boats have left by 11:00, and when "
    "is the next one? Work it out step by step.",
    "Which planet has the shortest year?\nA. Venus\nB. Mercury\nC. Mars\nD. Earth\nAnswer with the letter "
    "and one sentence of reason.",
    "Write a Python function `median(values)` that returns the median of a non-empty list of numbers.",
    "Describe how a sailing boat can travel against the wind, in two or three sentences.",
    "Translate into French: The bakery on the corner opens at seven and sells out before noon.",
    "Compare rivers and canals as ways to move goods. Name one advantage of each.",
)
"""Written for this project: arithmetic, multiple choice, code, description, translation, comparison."""
