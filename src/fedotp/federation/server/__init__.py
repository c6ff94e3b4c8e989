"""The server's half of a round: what updates do to the shared parameters, and the privacy that this spends."""

from fedotp.federation.server._privacy import Accountant as Accountant
from fedotp.federation.server._rule import Updates as Updates
from fedotp.federation.server._server import Server as Server
