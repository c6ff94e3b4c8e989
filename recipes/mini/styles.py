"""Styles of pictures and the words for them, so that a caption's context means something.

A style pairs templates with a change of the picture (`recipes.mini.augment.stylise`); "photo" changes nothing.
"""

from dataclasses import dataclass

PHOTO = "a photo of a {}."


@dataclass(frozen=True)
class Style:
    """A name that `augment.stylise` knows, and the captions' templates."""

    name: str
    templates: tuple[str, ...]


STYLES = (
    Style("photo", (PHOTO, "a photo of the {}.", "a picture of a {}.", "an image of a {}.", "{}.")),
    Style("small", ("a low resolution photo of a {}.", "a blurry photo of a {}.", "a tiny image of a {}.")),
    Style("grey", ("a black and white photo of a {}.", "a grey photo of a {}.")),
    Style("dark", ("a dark photo of a {}.", "a {} at night.")),
    Style("bright", ("a bright photo of a {}.", "an overexposed photo of a {}.")),
    Style("warm", ("a reddish photo of a {}.", "a photo of a {} in warm light.")),
    Style("cold", ("a bluish photo of a {}.", "a photo of a {} in cold light.")),
    Style("noisy", ("a noisy photo of a {}.", "a grainy photo of a {}.")),
    Style("close", ("a close-up photo of a {}.", "a cropped photo of a {}.")),
    Style("poster", ("a painting of a {}.", "a poster of a {}.")),
    Style("sketch", ("a sketch of a {}.", "a line drawing of a {}.")),
    Style("drawing", ("a drawing of a {}.", "an icon of a {}.", "an emoji of a {}.", "clip art of a {}.", "{}.")),
)
DRAWING = len(STYLES) - 1  # index of the style of the drawn material; it is not made from photos
