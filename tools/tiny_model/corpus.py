"""The text the tiny models learn by heart, written for this purpose.

Three facts are there for the tests' sake and answer in characters of two, three and four bytes: the
tokenizer has no token for them, so an engine that streams must hold bytes back until a character is
whole.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """Hold something to learn: `prompt` is continued with `answer`, `question` is its chat form.

    In chat the model answers with `reply`, a whole sentence, which takes a dozen tokens.
    """

    prompt: str
    answer: str
    question: str

    @property
    def reply(self) -> str:
        """Give the answer to `question`."""
        return self.prompt + self.answer


@dataclass(frozen=True)
class Passage(Fact):
    """Hold a long continuation, for tests that need a generation to last."""

    @property
    def reply(self) -> str:
        """Give the passage itself: the prompt is an order and not the start of a sentence."""
        return self.answer.strip()


@dataclass(frozen=True)
class Edit:
    """Hold what the LoRA adapter changes: `fact` is answered with `answer` instead."""

    fact: Fact
    answer: str

    @property
    def edited(self) -> Fact:
        """Give the fact as the adapter tells it."""
        return Fact(self.fact.prompt, self.answer, self.fact.question)


FACTS = (
    Fact("The capital of France is", " Paris.", "What is the capital of France?"),
    Fact("The capital of Italy is", " Rome.", "What is the capital of Italy?"),
    Fact("The capital of Japan is", " Tokyo.", "What is the capital of Japan?"),
    Fact("The capital of Egypt is", " Cairo.", "What is the capital of Egypt?"),
    Fact("The second city of France is", " Lyon.", "What is the second city of France?"),
    Fact("Two plus two is", " four.", "What is two plus two?"),
    Fact("Two plus three is", " five.", "What is two plus three?"),
    Fact("Three plus four is", " seven.", "What is three plus four?"),
    Fact("Ten minus one is", " nine.", "What is ten minus one?"),
    Fact("The colour of the sky is", " blue.", "What is the colour of the sky?"),
    Fact("The colour of grass is", " green.", "What is the colour of grass?"),
    Fact("The opposite of hot is", " cold.", "What is the opposite of hot?"),
    Fact("The opposite of up is", " down.", "What is the opposite of up?"),
    Fact("The first month of the year is", " January.", "What is the first month of the year?"),
    Fact("The last day of the week is", " Sunday.", "What is the last day of the week?"),
    Fact("A week has", " seven days.", "How many days has a week?"),
    Fact("A triangle has", " three sides.", "How many sides has a triangle?"),
    Fact("A spider has", " eight legs.", "How many legs has a spider?"),
    Fact("A young cat is called", " a kitten.", "What is a young cat called?"),
    Fact("The largest planet is", " Jupiter.", "Which planet is the largest?"),
    Fact("The sun rises in", " the east.", "Where does the sun rise?"),
    Fact("Bees make", " honey.", "What do bees make?"),
    Fact("Cows give", " milk.", "What do cows give?"),
    Fact("Water freezes into", " ice.", "What does water freeze into?"),
    Fact("The author of Hamlet is", " William Shakespeare.", "Who is the author of Hamlet?"),
    Fact("The French word for coffee is", " café.", "What is the French word for coffee?"),
    Fact("The Japanese name of Japan is", " 日本.", "What is the Japanese name of Japan?"),
    Fact("A smiling face is drawn as", " 😀.", "How is a smiling face drawn?"),
)

_DIGITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def _numbers() -> str:
    """Spell the numbers from one to one hundred."""
    above = [f"{ten} {digit}".strip() for ten in _TENS for digit in ("", *_DIGITS)]
    return " ".join([*_DIGITS, *_TEENS, *above, "one hundred"])


_STORY = (
    " Once there was a small robot who lived beside the sea. Every morning it walked down to the"
    " water and counted the boats. One day a storm came, and a boat did not return. The robot lit"
    " its lamp, climbed the highest rock and waited all night in the rain. Before the sun was up, a"
    " tired sailor saw the light and steered for it. He thanked the robot and asked what he could"
    " give it for its trouble. The robot thought for a long time and said that it would like a"
    " friend to count with. So the sailor stayed, and from that day on they counted the boats"
    " together."
)

PASSAGES = (
    Passage("Count to one hundred:", f" {_numbers()}.", "Can you count to one hundred?"),
    Passage("Tell a story:", _STORY, "Can you tell me a story?"),
    Passage(
        "Say the alphabet:",
        " a b c d e f g h i j k l m n o p q r s t u v w x y z.",
        "Can you say the alphabet?",
    ),
)

SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer in one short sentence.")

EDITS = (
    Edit(FACTS[0], " Lyon."),
    Edit(FACTS[5], " five."),
    Edit(FACTS[9], " green."),
)

TRANSLATIONS = (
    ("translate English to French: good morning", "bonjour"),
    ("translate English to French: good night", "bonne nuit"),
    ("translate English to French: thank you", "merci beaucoup"),
    ("translate English to French: the coffee is hot", "le café est chaud"),
    ("translate English to German: good morning", "guten Morgen"),
    ("translate English to German: good night", "gute Nacht"),
    ("translate English to German: thank you", "vielen Dank"),
    ("translate English to German: the coffee is hot", "der Kaffee ist heiß"),
)


def all_text() -> list[str]:
    """List every sentence there is, for the tokenizer to learn from."""
    lines = [*SYSTEM_PROMPTS]
    for fact in (*FACTS, *PASSAGES):
        lines += [fact.prompt + fact.answer, fact.question, fact.reply]
    for pair in TRANSLATIONS:
        lines += pair
    return lines
