"""A tokenizer whose tokens are words with the blank before them; it learns them as they come."""

import re
import zlib
from collections.abc import Sequence

_WORD = re.compile(r"\s*\S+|\s+")


class WordTokenizer:
    eos_token_id = 2

    def __init__(self) -> None:
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        return 32_000

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        # The same in each process, as a tokenizer's file has them.
        return [
            self._words.setdefault(w, zlib.crc32(w.encode("utf-8", "replace")) % 31_900 + 100)
            for w in _WORD.findall(text)
        ]

    def apply_chat_template(self, conversation: list[dict[str, str]], **_: object) -> list[int]:
        return self.encode("".join(f"<{each['role']}> {each['content']} " for each in conversation))

    def decode(self, ids: Sequence[int], **_: bool) -> str:
        names = {number: word for word, number in self._words.items()}
        return "".join(names.get(number, f"<{number}>") for number in ids)
