#!/bin/sh
# The learning rate, schedule and rounds of the demo, on splits that it does not show (it shows 6 to 11):
#
#   sh recipes/demo/choose.sh runs/choice                          # again: goes on where it was stopped
#   sh recipes/demo/choose.sh runs/choice --splits 100..111        # options for the comparisons
set -eu
folder=$1
shift
run() { # NAME options
    name=$1
    shift
    python -m fedotp compare demo-sites --methods fedotp,coop,promptfl --splits 100..103 --seeds 0 --out "$folder/$name" "$@"
}
run constant-0.1 --set optimizer.schedule=constant --set optimizer.lr=0.1 --set federation.rounds=16 --set evaluation.every=2 "$@"
for lr in 0.1 0.2 0.25 0.5; do
    run cosine-$lr --set optimizer.schedule=cosine --set optimizer.lr=$lr --set evaluation.every=0 "$@"
done
python -m recipes.demo.choice "$folder" recipes/demo/choice.csv
