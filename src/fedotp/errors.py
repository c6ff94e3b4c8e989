"""The one exception type that means "the input is wrong", as opposed to a bug in fedotp."""


class FedotpError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """
