"""The clients' half of a round: training side by side, what each keeps, private steps, attacks."""

from fedotp.federation.clients._attack import Attack as Attack
from fedotp.federation.clients._clients import Clients as Clients
from fedotp.federation.clients._kept import KeptRows as KeptRows
from fedotp.federation.clients._local import LocalResult as LocalResult
from fedotp.federation.clients._local import LocalTrainer as LocalTrainer
from fedotp.federation.clients._local import LocalWork as LocalWork
