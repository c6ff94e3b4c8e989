"""A page, metrics and a health check that show what a server or a site does, from its events. Read-only."""

from fedotp.flower.status._status import Status as Status
from fedotp.flower.status._status_page import StatusAddress as StatusAddress
from fedotp.flower.status._status_page import serve_status as serve_status
