"""The texts of a calibration: questions with answers, or a file of the user's.

Responsible for the texts as token ids. Not responsible for what is measured on them (see `moments`).

None of them is a question of `verification_prompts`: what is verified must not have been seen.
"""

from __future__ import annotations

from convert.source.tokenizer import Identity

MOST_IDS = 8192
"""Ids of a text that are used."""
PIECE = 256

CONVERSATIONS = (
    (
        "A baker makes 18 trays of rolls with 24 rolls on each. She sells 5 out of every 6. How many are "
        "left?",
        "First find how many rolls there are: 18 * 24 = 432. She sells 5/6 of them, so 1/6 is left: 432 / "
        "6 = 72. There are 72 rolls left.",
    ),
    (
        "Nadia reads 12 pages on Monday and 5 pages more each day than on the day before. How many pages "
        "has she read by the end of Friday?",
        "The days are 12, 17, 22, 27 and 32 pages. 12 + 17 = 29, 29 + 22 = 51, 51 + 27 = 78 and 78 + 32 = "
        "110. She has read 110 pages. The answer is 110.",
    ),
    (
        "A jacket costs $80. It is reduced by 25%, and then a tax of 8% is added. What does Tom pay?",
        "The reduction is 80 * 0.25 = $20, which leaves 80 - 20 = $60. The tax is 60 * 0.08 = $4.80. Tom "
        "pays 60 + 4.80 = $64.80.",
    ),
    (
        "Two trains are 300 km apart and travel towards each other at 70 km/h and 80 km/h. When do they "
        "meet?",
        "Together they come closer by 70 + 80 = 150 km every hour. 300 / 150 = 2, so they meet after 2 "
        "hours.",
    ),
    (
        "Solve for x: 3(x - 4) = 2x + 7.",
        "Expand the left side: 3x - 12 = 2x + 7. Subtract 2x: x - 12 = 7. Add 12: **x = 19**. Check: 3(19 "
        "- 4) = 45 and 2 * 19 + 7 = 45.",
    ),
    (
        "Which gas do plants take in during photosynthesis?\nA) Oxygen\nB) Nitrogen\nC) Carbon dioxide\nD) "
        "Hydrogen",
        "C) Carbon dioxide. With energy from light, plants turn carbon dioxide and water into sugar, and "
        "oxygen is given off.",
    ),
    (
        "Choose the best answer: a metal spoon in hot tea becomes warm mainly by\n(A) radiation (B) "
        "conduction (C) convection (D) evaporation",
        "The answer is (B). Heat passes through the metal from particle to particle, which is conduction.",
    ),
    (
        "Who wrote the play Hamlet, and when was it written?",
        "Hamlet was written by William Shakespeare, probably between 1599 and 1601. It was first printed "
        "in 1603.",
    ),
    (
        "What is the difference between weather and climate?",
        "Weather is the state of the air at one place and time: whether it rains, how warm it is, how the "
        "wind blows. Climate is the pattern of weather over many years. One cold winter says little about "
        "the climate; thirty of them say a great deal.",
    ),
    (
        "Explain how vaccines work to a twelve-year-old.",
        "Your body has a team of defenders called the immune system. A vaccine shows it a harmless piece "
        "of a germ, a bit like a wanted poster. The defenders learn what it looks like and remember it. If "
        "the real germ ever turns up, they recognise it at once and stop it before you become ill.",
    ),
    (
        "Write a Python function that returns True if a string is a palindrome.",
        '```python\ndef is_palindrome(text: str) -> bool:\n    """Ignore case, spaces and '
        'punctuation."""\n    letters = [c.lower() for c in text if c.isalnum()]\n    return letters == '
        'letters[::-1]\n```\n\nThe list holds only letters and digits, so `is_palindrome("Never odd or '
        'even")` returns `True`.',
    ),
    (
        "def count_words(path):\n    # return a dict from each word of the file to its number of occurrences",
        "```python\nfrom collections import Counter\n\n\ndef count_words(path):\n    counts = "
        'Counter()\n    with open(path, encoding="utf-8") as file:\n        for line in file:\n            '
        "counts.update(line.split())\n    return dict(counts)\n```",
    ),
    (
        "How do I list the ten largest files in a folder on Linux?",
        "Run this in a shell:\n\n```\nfind . -type f -printf '%s %p\\n' | sort -nr | head -n 10\n```\n\n"
        "`find` prints the size in bytes and the path of every file, `sort -nr` puts the largest first, "
        "and `head` keeps ten lines.",
    ),
    (
        "Write an SQL query for the customers who have placed more than three orders in 2023.",
        "```sql\nSELECT c.id, c.name, COUNT(*) AS orders\nFROM customers AS c\nJOIN orders AS o ON "
        "o.customer_id = c.id\nWHERE o.placed_at >= '2023-01-01' AND o.placed_at < '2024-01-01'\nGROUP BY "
        "c.id, c.name\nHAVING COUNT(*) > 3;\n```",
    ),
    (
        "Return this as JSON: Lina, 34, lives in Oslo, speaks Norwegian and English.",
        '{"name": "Lina", "age": 34, "city": "Oslo", "languages": ["Norwegian", "English"]}',
    ),
    (
        "Summarise in one sentence: The town council voted on Tuesday to close the old bridge to cars from "
        "next spring. Cyclists and pedestrians may still use it, and a bus line will be moved to the "
        "northern crossing. Shopkeepers on the east side fear for their trade.",
        "From next spring the old bridge will be open only to cyclists and pedestrians, a decision that "
        "worries shopkeepers on the east side.",
    ),
    (
        "Give me three tips for sleeping better.",
        "1. **Keep regular hours.** Go to bed and get up at the same time every day, weekends included.\n"
        "2. **Dim the evening.** Bright screens late at night tell your body that it is still day.\n3. "
        "**Watch the caffeine.** Coffee after lunch can still be at work at midnight.",
    ),
    (
        "Write a short, polite email that moves a meeting from Thursday to Friday.",
        "Subject: Moving our meeting to Friday\n\nDear Ms Okafor,\n\nI am sorry to ask, but something has "
        "come up on Thursday afternoon. Could we meet on Friday at 10 a.m. instead? If that does not suit "
        "you, I am free all day on Monday.\n\nKind regards,\nDaniel",
    ),
    (
        "Continue the story: The lighthouse had been dark for eleven years when Mara found the key.",
        "It was lying in a tin of buttons, wrapped in a page of an old tide table. She turned it over in "
        "the grey light of the kitchen. Her grandfather had always said the lock was rusted through, yet "
        "the key was bright, as if someone had oiled it every winter. That evening she took a lantern and "
        "walked out along the stones.",
    ),
    (
        "What should I do if I smell gas in my flat?",
        "Leave lights and switches alone and do not use a flame. Open the windows, close the gas valve if "
        "you can reach it safely, and go outside. Then call the emergency number of your gas supplier, and "
        "wait until they tell you that it is safe to return.",
    ),
    (
        "Erkläre kurz, warum der Himmel blau ist.",
        "Das Licht der Sonne enthält alle Farben. In der Luft wird blaues Licht viel stärker gestreut als "
        "rotes, weil seine Wellenlänge kürzer ist. Deshalb kommt das Blau aus allen Richtungen zu uns.",
    ),
    (
        "Quelle est la capitale de l'Australie ?",
        "La capitale de l'Australie est Canberra, et non Sydney, comme on le croit souvent.",
    ),
    (
        "Traduce al inglés: «Mañana iremos al mercado para comprar fruta y pescado fresco».",
        '"Tomorrow we will go to the market to buy fruit and fresh fish."',
    ),
    (
        "请用一句话解释什么是光合作用。",
        "光合作用是植物利用阳光，把二氧化碳和水转化为糖并释放氧气的过程。",
    ),
    (
        "日本で一番高い山は何ですか。",
        "日本で一番高い山は富士山で、高さは3,776メートルです。",
    ),
    (
        "Is 91 a prime number?",
        "No. 91 = 7 * 13, so it has divisors other than 1 and itself.",
    ),
    (
        "List the planets from the Sun outwards.",
        "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.",
    ),
    (
        "What is the plural of 'analysis', and how is it pronounced?",
        "The plural is 'analyses'. The last syllable rhymes with 'seas', while that of the singular rhymes "
        "with 'this'.",
    ),
    (
        "A bag holds 3 red, 5 blue and 2 green marbles. What is the probability of drawing two blue ones "
        "in a row without putting the first back?",
        "There are 3 + 5 + 2 = 10 marbles. The first is blue with probability 5/10, the second then with "
        "4/9. (5/10) * (4/9) = 20/90 = 2/9, which is about 0.22.",
    ),
    (
        "Why did the Roman Empire fall?",
        "Historians name several causes that worked together: pressure from peoples at the borders, civil "
        "wars over the throne, a weakening economy with heavy taxes, and the division of the empire into "
        "two halves. In the west the last emperor was deposed in 476; the eastern half lasted until 1453.",
    ),
)
"""Written for this project: arithmetic, multiple choice, facts, code, prose, other languages."""


def conversation_ids(identity: Identity) -> list[list[int]]:
    """Token ids of each of `CONVERSATIONS`, question and answer in the model's own form."""
    tokenizer = identity.tokenizer
    return [identity.prompt_ids(question) + tokenizer.encode(answer) for question, answer in CONVERSATIONS]


def text_pieces(identity: Identity, text: str, most: int = MOST_IDS) -> list[list[int]]:
    """The first `most` ids of a text, in pieces of at most `PIECE`; the last id begins none."""
    ids = identity.tokenizer.encode(text)[:most]
    return [ids[start : start + PIECE] for start in range(0, len(ids) - 1, PIECE)]
