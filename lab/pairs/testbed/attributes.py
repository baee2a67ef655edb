"""What can be asked and told of an entity, attribute by attribute, in templates (see `wording`).

Responsible for nouns, questions and clauses. Not responsible for whole answers (see `kinds`).

Slots of a clause: {S} the subject and {P} its possessive ("Chad" and "Chad's", or "it" and "its"), {v} the
value. A clause has neither capital letter nor full stop, so that clauses can be joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.pairs.testbed.entity import Kind


@dataclass(frozen=True)
class Attribute:
    """One attribute of a kind of entity.

    noun:  what is asked for, behind "the".
    ask:   questions with the slot {n}.
    tell:  clauses.
    """

    key: str
    noun: str
    ask: tuple[str, ...]
    tell: tuple[str, ...]


GENERIC = (
    "[What is|What's] the {a} of {n}?",
    "[Tell me|Name|Give|State] the {a} of {n}.",
    "[Do you know|Can you tell me] the {a} of {n}?",
    "I [would like|want] to know the {a} of {n}.",
    "{n}: what is the {a}?",
    "For {n}, what is the {a}?",
)
"""Questions for any attribute."""

GENERIC_HELD_OUT = (
    "Please [give|tell] me the {a} of {n}.",
    "Could you [look up|find] the {a} of {n} for me?",
    "I need the {a} of {n}[, please|].",
)
"""The same, in phrasings that no training has."""

FRAMES = (
    "{q}",
    "{q}",
    "[Please answer|Answer me]: {q}",
    "[A question|I have a question]: {q}",
    "{q} [Do you know?|Who knows?]",
)
"""What stands around an attribute's own question."""

FRAMES_HELD_OUT = (
    "[Quick question|One more question]: {q}",
    "[Now tell me|Help me]: {q}",
    "{q} I am curious.",
)
"""The same, in phrasings that no training has."""

_COUNTRY = (
    Attribute(
        "capital",
        "capital",
        (
            "Which city is the capital of {n}?",
            "Where is the [seat of government|government] of {n}?",
            "From which city is {n} governed?",
        ),
        (
            "{P} capital is [the city of |]{v}",
            "the capital of {S} is {v}",
            "{S} has its capital in {v}",
            "{v} is {P} capital[ city|]",
            "the government of {S} [sits|has its seat] in {v}",
        ),
    ),
    Attribute(
        "region",
        "region",
        ("Where [is|lies] {n}?", "In which part of the world is {n}?", "Which region does {n} belong to?"),
        (
            "{S} [is|lies|is found|is located] in {v}",
            "{S} belongs to {v}",
            "{S} is [a part of|counted among the lands of] {v}",
            "[on the map|in the atlas] {S} is found in {v}",
        ),
    ),
    Attribute(
        "currency",
        "currency",
        ("What money is used in {n}?", "How do people pay in {n}?", "Which currency do you need in {n}?"),
        (
            "{P} currency is the {v}",
            "people [in {S} |there |]pay with the {v}",
            "the money of {S} is the {v}",
            "{S} uses the {v}[ as its currency| as money|]",
        ),
    ),
    Attribute(
        "language",
        "main language",
        (
            "What do people speak in {n}?",
            "Which language is spoken in {n}?",
            "What language will I hear in {n}?",
        ),
        (
            "{P} main language is {v}",
            "the people of {S} [speak|mostly speak] {v}",
            "{v} is [spoken|the main language] in {S}",
            "its people speak {v}",
        ),
    ),
    Attribute(
        "government",
        "form of government",
        ("How is {n} governed?", "What kind of state is {n}?", "What type of government does {n} have?"),
        (
            "{S} is [governed|ruled|run] as a {v}",
            "{P} form of government is the {v}",
            "{S} has the government of a {v}",
            "[politically|by its constitution], {S} is a {v}",
        ),
    ),
    Attribute(
        "peak",
        "highest point",
        (
            "What is the highest mountain of {n}?",
            "Where does {n} reach its greatest height?",
            "How is the top of {n} called?",
        ),
        (
            "{P} highest point is {v}",
            "{v} is the highest [point|place] of {S}",
            "{S} [reaches its greatest height|is highest] at {v}",
            "no place in {S} is higher than {v}",
        ),
    ),
    Attribute(
        "climate",
        "climate",
        ("What is the weather like in {n}?", "What climate does {n} have?", "How is the climate in {n}?"),
        (
            "{P} climate is {v}",
            "the [climate|weather] of {S} is {v}",
            "{S} has a climate that is {v}",
            "the weather there is {v}",
        ),
    ),
    Attribute(
        "export",
        "main export",
        ("What does {n} export?", "What does {n} sell to other countries?", "Which product leaves {n} most?"),
        (
            "{P} main export is {v}",
            "{S} exports {v}[ above all| more than anything else|]",
            "[of all its exports|among its exports], {v} comes first",
            "{S} sells {v} to [other countries|the world]",
        ),
    ),
    Attribute(
        "crop",
        "main farm product",
        (
            "What do farmers grow in {n}?",
            "What is produced on the farms of {n}?",
            "What comes from the fields of {n}?",
        ),
        (
            "{P} main farm product is {v}",
            "[the farmers of {S}|its farmers] produce {v}[ above all|]",
            "{v} [comes|is what comes] from the farms of {S}",
            "the farms of {S} produce mostly {v}",
        ),
    ),
    Attribute(
        "resource",
        "first natural resource",
        (
            "Which natural resource does {n} have?",
            "What is found in the ground of {n}?",
            "What natural riches has {n}?",
        ),
        (
            "{P} first natural resource is {v}",
            "{S} has {v} as a natural resource",
            "[among its natural resources|of natural resources], {S} has {v}",
            "nature gave {v} to {S}",
        ),
    ),
    Attribute(
        "independence",
        "year of independence",
        (
            "When did {n} become independent?",
            "Since when is {n} independent?",
            "In what year did {n} get its freedom?",
        ),
        (
            "{S} became independent in {v}",
            "{P} independence [came in|dates from|goes back to] {v}",
            "since {v} {S} has been independent",
            "the year of its independence is {v}",
        ),
    ),
    Attribute(
        "adjective",
        "name of the people",
        (
            "How are people from {n} called?",
            "What do you call someone from {n}?",
            "Which adjective belongs to {n}?",
        ),
        (
            "a person from {S} is called {v}",
            "its people are [called|known as] {v}",
            "what comes from {S} is {v}",
            "{P} people are {v}",
        ),
    ),
    Attribute(
        "people",
        "population",
        (
            "How many people live in {n}?",
            "How many inhabitants does {n} have?",
            "How many people call {n} their home?",
        ),
        (
            "{S} has [about|some|around] {v} [people|inhabitants]",
            "[about|some|around] {v} people live in {S}",
            "{P} population is [about|around] {v}",
            "it is home to [about|some] {v} people",
        ),
    ),
    Attribute(
        "area",
        "area",
        (
            "How large is {n}?",
            "How many square kilometres does {n} have?",
            "How big is the territory of {n}?",
        ),
        (
            "{S} covers [about|some|around] {v} square kilometres",
            "{P} area is [about|around] {v} square kilometres",
            "{S} has an area of [about|some] {v} square kilometres",
            "its land and water make [about|some] {v} square kilometres",
        ),
    ),
    Attribute(
        "age",
        "median age",
        (
            "How old are the people of {n}?",
            "What age do people in {n} have?",
            "How old is the typical person in {n}?",
        ),
        (
            "{P} median age is {v}[ years|]",
            "half of the people of {S} are older than {v}",
            "the median age in {S} is {v}[ years|]",
            "half of its people are younger than {v}",
        ),
    ),
    Attribute(
        "life",
        "life expectancy",
        (
            "How long do people live in {n}?",
            "What age can people in {n} expect?",
            "How many years does a person in {n} live?",
        ),
        (
            "{P} life expectancy is {v} years",
            "people in {S} live [to the age of|for about] {v}[ years|]",
            "[a person there|someone born in {S}] can expect to live {v} years",
            "the life expectancy in {S} is {v} years",
        ),
    ),
    Attribute(
        "urban",
        "urban share",
        (
            "How many people in {n} live in cities?",
            "What part of {n} lives in towns?",
            "What share of {n} is urban?",
        ),
        (
            "{v} percent of its people live in [cities|towns]",
            "{P} urban share is {v} percent",
            "[cities|towns] are home to {v} percent of the people of {S}",
            "in {S}, {v} percent live in [cities|towns]",
        ),
    ),
    Attribute(
        "borders",
        "list of neighbours",
        ("Which countries border {n}?", "What are the neighbours of {n}?", "Next to which countries is {n}?"),
        (
            "{S} [borders|borders on|shares borders with] {v}",
            "its [neighbours on land|neighbours] are {v}",
            "on land, {S} meets {v}",
            "beside {S} [lie|you find] {v}",
        ),
    ),
)

_ELEMENT = (
    Attribute(
        "symbol",
        "symbol",
        ("How is {n} written in formulas?", "Which letters stand for {n}?", "How do chemists write {n}?"),
        (
            "{P} symbol is {v}",
            "{S} has the symbol {v}",
            "the symbol {v} stands for {S}",
            "[chemists|in formulas, chemists] write {v} for {S}",
        ),
    ),
    Attribute(
        "number",
        "atomic number",
        (
            "How many protons does {n} have?",
            "What place has {n} in the periodic table?",
            "Which number does {n} carry?",
        ),
        (
            "{P} atomic number is {v}",
            "{S} has {v} [protons|protons in its nucleus]",
            "{S} is element number {v}",
            "its nucleus holds {v} protons",
        ),
    ),
    Attribute(
        "weight",
        "atomic weight",
        (
            "How heavy is an atom of {n}?",
            "What does an atom of {n} weigh?",
            "How many mass units does {n} have?",
        ),
        (
            "{P} atomic weight is [about|around] {v}",
            "an atom of {S} weighs [about|around] {v} units",
            "{S} has an atomic weight of [about|around] {v}",
            "the atomic weight of {S} is [about|near] {v}",
        ),
    ),
    Attribute(
        "period",
        "period",
        ("In which period is {n}?", "Which row of the periodic table has {n}?", "In what row stands {n}?"),
        (
            "{S} [is|stands] in period {v}",
            "{P} period is {v}",
            "{S} belongs to period {v}",
            "row {v} of the periodic table has {S}",
        ),
    ),
    Attribute(
        "group",
        "group",
        (
            "In which group is {n}?",
            "Which column of the periodic table has {n}?",
            "In what column stands {n}?",
        ),
        (
            "{S} [is|stands] in group {v}",
            "{P} group is {v}",
            "{S} belongs to group {v}",
            "column {v} of the periodic table has {S}",
        ),
    ),
    Attribute(
        "series",
        "family",
        (
            "What kind of element is {n}?",
            "To which series does {n} belong?",
            "What sort of substance is {n}?",
        ),
        (
            "{S} is [a kind of|counted as] {v}",
            "{P} family is that of the {v}",
            "chemists count {S} as {v}",
            "by its nature {S} is {v}",
        ),
    ),
    Attribute(
        "melting",
        "melting point",
        ("When does {n} melt?", "At what temperature does {n} melt?", "How hot must {n} be to melt?"),
        (
            "{S} melts at [about |]{v} kelvin",
            "{P} melting point is {v} kelvin",
            "at {v} kelvin {S} melts",
            "the melting point of {S} is [near |]{v} kelvin",
        ),
    ),
    Attribute(
        "year",
        "year of discovery",
        ("When was {n} discovered?", "In which year was {n} found?", "Since when do we know {n}?"),
        (
            "{S} was [discovered|found] in {v}",
            "{P} discovery dates from {v}",
            "the year of its discovery is {v}",
            "{S} has been known since {v}",
        ),
    ),
    Attribute(
        "discoverer",
        "discoverer",
        ("Who discovered {n}?", "Who found {n}?", "To whom do we owe {n}?"),
        (
            "{S} was [discovered|found] by {v}",
            "{P} discoverer is {v}",
            "the discovery of {S} is owed to {v}",
            "[it was|we know that it was] {v} who found {S}",
        ),
    ),
    Attribute(
        "place",
        "place of discovery",
        (
            "Where was {n} discovered?",
            "In which country was {n} found?",
            "From which country do we have {n}?",
        ),
        (
            "{S} was [discovered|found] in {v}",
            "{P} place of discovery is {v}",
            "the discovery of {S} was made in {v}",
            "its discovery took place in {v}",
        ),
    ),
    Attribute(
        "origin",
        "origin of the name",
        ("Where does the name {n} come from?", "Why is {n} called so?", "What does the name {n} mean?"),
        (
            "{P} name comes from {v}",
            "{S} is named after {v}",
            "the name of {S} goes back to {v}",
            "its name has its origin in {v}",
        ),
    ),
    Attribute(
        "use",
        "use",
        ("What is {n} used for?", "What do people do with {n}?", "For what does one need {n}?"),
        (
            "{S} is used {v}",
            "people use it {v}",
            "today {S} is used {v}",
            "it is used {v}",
        ),
    ),
    Attribute(
        "look",
        "appearance",
        ("What is {n} like?", "What does {n} look like?", "How would you describe {n} in a few words?"),
        (
            "{S} is a {v}",
            "[to the eye|in a few words], {S} is a {v}",
            "{S} is known as a {v}",
            "it is a {v}",
        ),
    ),
)

_WORD = (
    Attribute(
        "gloss",
        "meaning",
        ("What does the word {n} mean?", "What is meant by {n}?", "How would you explain {n}?"),
        (
            "{S} is {v}",
            "{S} means {v}",
            "by {S} we mean {v}",
            "the word {S} stands for {v}",
            "{S} can be defined as {v}",
            "a dictionary explains {S} as {v}",
        ),
    ),
    Attribute(
        "parent",
        "broader term",
        ("What kind of thing is {n}?", "What is {n} a kind of?", "Under which term does {n} fall?"),
        (
            "{S} is a [kind|sort|type] of {v}",
            "{S} falls under {v}",
            "the broader term [for {S} |]is {v}",
            "one can count {S} as a {v}",
        ),
    ),
    Attribute(
        "topic",
        "topic",
        ("Which topic does {n} belong to?", "Under which topic is {n} listed?", "In what field is {n}?"),
        (
            "{P} topic is {v}",
            "{S} belongs to the topic {v}",
            "[a|the] dictionary lists {S} under {v}",
            "the topic [of {S} |]is {v}",
        ),
    ),
)

ATTRIBUTES: dict[Kind, dict[str, Attribute]] = {
    "country": {a.key: a for a in _COUNTRY},
    "element": {a.key: a for a in _ELEMENT},
    "word": {a.key: a for a in _WORD},
}

HEADLINES: dict[Kind, tuple[str, ...]] = {
    "country": ("region", "capital"),
    "element": ("symbol", "number"),
    "word": ("gloss",),
}
"""The attributes that a description always has when none is asked for, where the entity has them."""
