"""The adapter to Flower: SuperLink inside the server, SuperNode and its worker at a site, and what passes between."""

from fedotp.flower.link._executor import Executor
from fedotp.flower.link._flwr import silence
from fedotp.flower.link._post import Post, is_lost
from fedotp.flower.link._superlink import SuperLink, free_port, superlink
from fedotp.flower.link._supernode import SuperNode

__all__ = [
    "Executor",
    "Post",
    "SuperLink",
    "SuperNode",
    "free_port",
    "is_lost",
    "silence",
    "superlink",
]
