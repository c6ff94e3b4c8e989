"""A small local page to use classifiers on images, with nothing but the standard library behind it."""

from fedotp.serve._server import Server, is_loopback, make_server

__all__ = ["Server", "is_loopback", "make_server"]
