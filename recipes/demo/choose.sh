#!/bin/sh
# How many rounds and splits the demo needs, on splits that it does not show (it shows 0 to 5):
#
#   sh recipes/demo/choose.sh runs/choice                          # again: goes on where it was stopped
#   sh recipes/demo/choose.sh runs/choice --splits 100..111        # options for the comparison
set -eu
folder=$1
shift
python -m fedotp compare demo-sites --methods fedotp,coop,promptfl --splits 100..103 --seeds 0 \
    --set federation.rounds=16 --set evaluation.every=2 --out "$folder" "$@"
python -m recipes.demo.choice "$folder" recipes/demo/choice.csv
