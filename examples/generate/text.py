"""The text of the repository's own pages, and the pieces of words that it is cut into.

A text is UTF-8. Its first 256 tokens are the bytes themselves. Each further token is a pair of earlier ones that stood
side by side often: this is byte-pair encoding, learned from the text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The token between two pages, which is no byte of a page.
END = 0
BYTES = 256
# Pieces of text that no token reaches across: a word with the space before it, digits, signs, space.
_PIECE = re.compile(r" ?[^\W\d_]+| ?\d+| ?[^\w\s]+|\s+(?!\S)|\s|_")
_PARAGRAPH = re.compile(r"(- |\d+\. )?\w.{40}")

Pair = tuple[int, int]


def pages() -> list[str]:
    """Return the prose of each page: its paragraphs with at most two words of code, one a line."""
    files = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "ARCHITECTURE.md"]
    return [page for file in files if (page := _prose(file.read_text("utf-8")))]


def _prose(page: str) -> str:
    # Programs and tables, bold letters, and what makes a link of a text.
    page = re.sub(r"```.*?```|^ *\|.*?$|\*\*|\]\([^)]*\)|\[(?=[^\]]*\]\()", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"(?<=\S)\n *(?!\d+\.)(?=[\w`(\"])", " ", page)
    lines = [line.strip() for line in page.split("\n")]
    return "".join(f"{line}\n" for line in lines if _PARAGRAPH.match(line) and line.count("`") <= 4)


class Tokenizer:
    """Tokens for text, and text for tokens."""

    def __init__(self, pairs: Iterable[Sequence[int]]) -> None:
        """Take the pairs of earlier tokens that are the tokens from 256 on."""
        self.pairs: list[Pair] = [(int(first), int(second)) for first, second in pairs]
        self._numbers = {pair: BYTES + at for at, pair in enumerate(self.pairs)}
        self._texts = [bytes([byte]) for byte in range(BYTES)]
        for first, second in self.pairs:
            self._texts.append(self._texts[first] + self._texts[second])

    def __len__(self) -> int:
        return len(self._texts)

    @classmethod
    def learned(cls, texts: Iterable[str], tokens: int) -> "Tokenizer":
        """Learn that many tokens: again and again, the pair that is the most frequent one becomes a token."""
        counts = Counter(piece for text in texts for piece in _PIECE.findall(text))
        pieces = [list(piece.encode()) for piece in counts]
        times = list(counts.values())
        frequent: Counter[Pair] = Counter()
        places: defaultdict[Pair, set[int]] = defaultdict(set)
        pairs: list[Pair] = []

        def count(at: int, sign: int) -> None:
            for pair in pairwise(pieces[at]):
                frequent[pair] += sign * times[at]
                places[pair].add(at)

        for at in range(len(pieces)):
            count(at, 1)
        for number in range(BYTES, tokens):
            best = max(frequent, key=lambda pair: (frequent[pair], pair))
            pairs.append(best)
            for at in places.pop(best):
                count(at, -1)
                pieces[at] = _joined(pieces[at], best, number)
                count(at, 1)
            del frequent[best]
        return cls(pairs)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        known = {piece: self._encoded(piece) for piece in set(_PIECE.findall(text))}
        return [token for piece in _PIECE.findall(text) for token in known[piece]]

    def _encoded(self, piece: str) -> list[int]:
        tokens = list(piece.encode())
        while pairs := [pair for pair in pairwise(tokens) if pair in self._numbers]:
            first = min(pairs, key=self._numbers.__getitem__)
            tokens = _joined(tokens, first, self._numbers[first])
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens. What is no UTF-8 becomes a replacement character."""
        return b"".join(self._texts[token] for token in tokens).decode(errors="replace")


def _joined(tokens: list[int], pair: Pair, number: int) -> list[int]:
    """Replace each occurrence of a pair by its number."""
    joined: list[int] = []
    for token in tokens:
        if joined and (joined[-1], token) == pair:
            joined[-1] = number
        else:
            joined.append(token)
    return joined
