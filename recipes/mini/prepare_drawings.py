"""Render openly licensed icons and emoji to 64 x 64 WebP with transparency: the drawn part of the training material.

    python -m recipes.mini.prepare_drawings --icons ICONS --wordnet WORDNET --out PACKS/drawings.npz

ICONS holds the `icons.json` of npm packages `@iconify-json/<set>` as `<set>.json`. The sets that are evaluated (Noto,
Twemoji, Fluent, OpenMoji, in any of their variants) are refused. Needs `pip install resvg_py`.
"""

import argparse
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recipes.mini.wordnet import WordNet

EVALUATED = ("noto", "twemoji", "fluent", "openmoji")
EMOJI = ("emojione", "fxemoji", "streamline-emojis", "emojione-monotone")
ICONS = (
    "flat-color-icons",
    "game-icons",
    "mdi",
    "tabler",
    "ph",
    "icon-park",
    "fa6-solid",
    "lucide",
    "healthicons",
    "maki",
)
_SKIP = re.compile(
    r"flag|keycap|regional|skin|tone|letter|button|clock-|o-clock|arrow|squared|symbol|sign|ideograph|variation|tag-|"
    r"japanese|katakana|input|circled|heavy|negative|zodiac|hand-|fullwidth"
)
_SUFFIX = re.compile(
    r"-(outline|variant|outlined|filled|fill|bold|thin|light|duotone|alt|off|solid|negative|one|two|three|[0-9]+|[0-9]+px)$"
)
_PREFIX = re.compile(r"^(ph|fluent|u[0-9a-f]{4,5})-")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--icons", type=Path, required=True)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    nouns = set(WordNet(args.wordnet).concrete_nouns())

    blobs, names, sets, seen = [], [], [], set()
    for family in (*EMOJI, *ICONS):
        path = args.icons / f"{family}.json"
        if not path.exists() or family.startswith(EVALUATED):
            continue
        for name, svg in _icons(json.loads(path.read_text())):
            caption = _caption(name, nouns, any_words=family in EMOJI)
            if caption is None or ((family, caption) in seen and family in ICONS):
                continue
            image = _render(svg)
            if image is not None:
                seen.add((family, caption))
                blobs.append(image)
                names.append(caption)
                sets.append(family)
        print(family, sets.count(family), flush=True)
    captions = sorted(set(names))
    index = {caption: i for i, caption in enumerate(captions)}
    np.savez(
        args.out,
        bytes=np.frombuffer(b"".join(blobs), np.uint8),
        offsets=np.cumsum([0, *map(len, blobs)]),
        labels=np.array([index[name] for name in names], np.int32),
        classes=np.array(captions),
        sets=np.array(sets),
    )
    print(len(blobs), "drawings,", len(captions), "names")


def _icons(collection: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and SVG of every visible icon; single-coloured icons are drawn in black."""
    for name, icon in sorted(collection["icons"].items()):
        if icon.get("hidden"):
            continue
        width = icon.get("width", collection.get("width", 16))
        height = icon.get("height", collection.get("height", 16))
        left, top = icon.get("left", 0), icon.get("top", 0)
        yield (
            name,
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" color="black" '
            f'viewBox="{left} {top} {width} {height}">{icon["body"]}</svg>',
        )


def _caption(name: str, nouns: set[str], *, any_words: bool) -> str | None:
    """A readable name: any words for emoji, a concrete noun of WordNet for icons."""
    if _SKIP.search(name):
        return None
    name = _PREFIX.sub("", name)
    while _SUFFIX.search(name):
        name = _SUFFIX.sub("", name)
    words = name.replace("-", " ").strip()
    words = re.sub(r"\b(face|emoji)\b", "", words).strip() or words
    if any_words:
        return words if 2 < len(words) <= 30 and re.fullmatch("[a-z ]+", words) and words.count(" ") < 4 else None
    return words if words in nouns else None


def _render(svg: str) -> bytes | None:
    import resvg_py  # type: ignore[import-not-found]

    try:
        png = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=64, height=64, skip_system_fonts=True))
    except ValueError:
        return None
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    if np.asarray(image)[..., 3].mean() < 8:  # next to nothing was drawn
        return None
    square = Image.new("RGBA", (64, 64))
    square.paste(image, ((64 - image.width) // 2, (64 - image.height) // 2))
    out = io.BytesIO()
    square.save(out, "WEBP", quality=80, method=4)
    return out.getvalue()


if __name__ == "__main__":
    main()
