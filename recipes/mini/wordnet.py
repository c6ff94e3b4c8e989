"""Just enough of WordNet 3.0: nouns with their lexicographer file, and the hypernyms of a class.

Reads the files of Debian's `wordnet-base` (`data.noun`, `index.noun`, `index.adj`) by their documented format.
"""

from dataclasses import dataclass
from pathlib import Path

# Lexicographer files of things one can see.
ANIMAL, ARTIFACT, BODY, FOOD, OBJECT, PERSON, PHENOMENON, PLANT, SHAPE, SUBSTANCE = 5, 6, 8, 13, 17, 18, 19, 20, 25, 27
CONCRETE = (ANIMAL, FOOD, ARTIFACT, PLANT, OBJECT, BODY, PERSON, PHENOMENON, SUBSTANCE, SHAPE)
# Hypernyms so general that a caption made of them says nothing.
_VAGUE = {
    "entity", "physical entity", "abstraction", "abstract entity", "object", "physical object", "whole", "unit",
    "matter", "artifact", "artefact", "organism", "being", "living thing", "animate thing", "thing",
    "instrumentality", "instrumentation", "substance", "causal agent", "cause", "causal agency", "group", "attribute",
    "psychological feature", "relation", "solid", "device", "conveyance", "transport", "equipment", "structure",
    "construction", "chordate", "way", "commodity", "consumer goods",
}  # fmt: skip


@dataclass(frozen=True)
class Synset:
    """One sense: its lexicographer file, its words and the offsets of its direct hypernyms."""

    lexicographer: int
    words: tuple[str, ...]
    hypernyms: tuple[int, ...]


class WordNet:
    """The nouns of WordNet by offset and by word."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds `data.noun`, `index.noun` and `index.adj`."""
        self.synsets = {int(line[:8]): _synset(line) for line in _lines(folder / "data.noun")}
        self.senses: dict[str, list[int]] = {}  # offsets, most frequent sense first
        self.common: set[str] = set()  # words with a sense that was met in WordNet's tagged texts
        for line in _lines(folder / "index.noun"):
            word, _, n_senses, n_pointers, *rest = line.split()
            word = word.replace("_", " ")
            rest = rest[int(n_pointers) :]
            self.senses[word] = [int(offset) for offset in rest[2 : 2 + int(n_senses)]]
            if int(rest[1]) > 0:
                self.common.add(word)
        self.adjectives = [
            fields[0]
            for fields in map(str.split, _lines(folder / "index.adj"))
            if int(fields[4 + int(fields[3]) + 1]) > 0 and fields[0].isalpha()
        ]

    def find(self, word: str) -> int | None:
        """The sense of a class name: an animal if there is one, else the most frequent concrete sense."""
        senses = self.senses.get(word.lower(), [])
        animals = [offset for offset in senses if self.synsets[offset].lexicographer == ANIMAL]
        concrete = [offset for offset in senses if self.synsets[offset].lexicographer in CONCRETE]
        return next(iter(animals + concrete), None)

    def captions(self, offset: int, depth: int = 4) -> list[list[str]]:
        """Words of a synset, then of its hypernyms upwards, the vague ones left out."""
        levels = []
        for _ in range(depth + 1):
            synset = self.synsets[offset]
            words = [w for w in synset.words[:3] if w.lower() not in _VAGUE]
            if words and not any(w.lower() in _VAGUE for w in synset.words):
                levels.append(words)
            if not synset.hypernyms:
                break
            offset = synset.hypernyms[0]
        return levels

    def concrete_nouns(self) -> list[str]:
        """Words with a concrete sense, without proper names, digits and long phrases; sorted."""
        found: set[str] = set()
        for synset in self.synsets.values():
            if synset.lexicographer in CONCRETE:
                found.update(w for w in synset.words if _plain(w))
        return sorted(found)


def _plain(word: str) -> bool:
    letters = word.replace(" ", "").replace("-", "")
    return letters.isalpha() and letters.islower() and word.count(" ") < 2 and 2 < len(word) <= 24


def _lines(path: Path) -> list[str]:
    """Lines of a WordNet file without the licence at its head, which is indented."""
    return [line for line in path.read_text(encoding="latin-1").splitlines() if not line.startswith(" ")]


def _synset(line: str) -> Synset:
    fields = line.split("|")[0].split()
    n_words = int(fields[3], 16)
    words = tuple(fields[4 + 2 * i].replace("_", " ") for i in range(n_words))
    at = 4 + 2 * n_words
    pointers = [fields[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(int(fields[at]))]
    hypernyms = tuple(int(offset) for symbol, offset, _, _ in pointers if symbol in ("@", "@i"))
    return Synset(int(fields[1]), words, hypernyms)
