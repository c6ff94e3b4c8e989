"""A picture that ends the process that decodes it. Decoding processes import this: without torch it takes no time."""

import os
import random
import signal

from PIL import Image


class Deadly:
    """A transform that ends the process it is used in."""

    def crop(self, image: Image.Image, rng: random.Random) -> Image.Image:
        os.kill(os.getpid(), signal.SIGKILL)
        return image
