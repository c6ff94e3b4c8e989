"""From a valid file to a damaged or forged one: the same for the same random generator."""

import contextlib
import random
from collections.abc import Callable

from fuzz.mutations import archive, pickled, picture, raw, tensors, text

Mutation = Callable[[bytes, random.Random], bytes]

_RAW = 0.25  # share of cases in which the format is not looked at
_MOST = 3  # mutations on top of one another

# The first whose test holds says what is done to a content.
_FORMATS: tuple[tuple[Callable[[bytes], bool], Mutation], ...] = (
    (archive.is_object, lambda content, rng: archive.mutate_message(content, rng, mutate_once)),
    (archive.is_zip, lambda content, rng: archive.mutate_zip(content, rng, mutate_once)),
    (tensors.is_safetensors, tensors.mutate_safetensors),
    (tensors.is_npy, tensors.mutate_npy),
    (tensors.is_mat, tensors.mutate_mat),
    (picture.is_dicom, picture.mutate_dicom),
    (pickled.is_pickle, pickled.mutate),
    (picture.is_picture, picture.mutate_picture),
    (text.is_pem, text.mutate_pem),
    (text.is_json_lines, text.mutate_json_lines),
    (text.is_json, text.mutate_json),
    (text.is_toml, text.mutate_toml),
    (text.is_text, text.mutate_lines),
)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three mutations, mostly one."""
    for _ in range(rng.choice((1, 1, 1, 2, _MOST))):
        content = mutate_once(content, rng)
    return content


def mutate_once(content: bytes, rng: random.Random) -> bytes:
    """The content with one mutation, mostly one that knows the format."""
    change = next((change for fits, change in _FORMATS if fits(content)), raw.mutate)
    if rng.random() > _RAW:
        with contextlib.suppress(Exception):  # it was mutated before, and is not what it looks like
            return change(content, rng)
    return raw.mutate(content, rng)
