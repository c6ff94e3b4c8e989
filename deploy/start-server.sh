#!/bin/sh
# Start the run in $FEDOTP_RUN, or resume it if it exists: what a server does after a crash or a reboot.
# The variables are explained in server.env.example.
set -eu
if [ -e "$FEDOTP_RUN/config.toml" ]; then
    exec fedotp server --resume "$FEDOTP_RUN" --keys "$FEDOTP_KEYS" ${FEDOTP_ALWAYS:-}
fi
exec fedotp server "$FEDOTP_CONFIG" --keys "$FEDOTP_KEYS" --out "$FEDOTP_RUN" ${FEDOTP_ALWAYS:-} ${FEDOTP_FIRST:-}
