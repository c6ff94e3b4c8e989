"""What SuperNode's process tells the site that started it."""

ACTIVATE, HEARTBEAT, PULL = "ActivateNode", "SendNodeHeartbeat", "PullMessages"
"""The calls that the server has answered, on standard output."""

TOO_MUCH = "the server's message is too large"
