"""A small local page to use classifiers on images, served with the standard library only."""

from fedotp.serve._server import make_server as make_server
