"""The adapter to Flower: SuperLink in the server, SuperNode and its worker at a site, and messages between them."""

from fedotp.flower.link._access import ConnectionLimits as ConnectionLimits
from fedotp.flower.link._ask import ask_server as ask_server
from fedotp.flower.link._flwr import silence as silence
from fedotp.flower.link._listener import Listener as Listener
from fedotp.flower.link._superlink import superlink as superlink
from fedotp.flower.link._supernode import Executor as Executor
from fedotp.flower.link._supernode import SuperNode as SuperNode
from fedotp.flower.link._transport import Transport as Transport
from fedotp.flower.link._transport import is_lost as is_lost
