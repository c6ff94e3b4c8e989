"""Every reader of foreign input against thousands of damaged and forged files and messages.

    python -m fuzz --cases 10000            all readers
    python -m fuzz --reader NAME --case N   one case again

A reader may read or refuse in one line (`FedotpError`). Anything else is a finding: another exception, code of the
input's that runs, a file written elsewhere, a hang, a crash, memory eaten.
"""
