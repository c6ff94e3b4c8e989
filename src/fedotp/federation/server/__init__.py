"""Server: aggregation of updates into the shared parameters, and accounting of privacy."""

from fedotp.federation.server._privacy import Accountant as Accountant
from fedotp.federation.server._rule import Updates as Updates
from fedotp.federation.server._server import Server as Server
