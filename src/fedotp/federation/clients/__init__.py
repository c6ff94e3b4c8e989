"""Clients: local training side by side, stored private parameters, private steps, attacks."""

from fedotp.federation.clients._attack import Attack as Attack
from fedotp.federation.clients._clients import Clients as Clients
from fedotp.federation.clients._kept import KeptRows as KeptRows
from fedotp.federation.clients._local import LocalResult as LocalResult
from fedotp.federation.clients._local import LocalTrainer as LocalTrainer
from fedotp.federation.clients._local import LocalWork as LocalWork
