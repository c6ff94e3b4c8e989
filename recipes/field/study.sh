#!/bin/sh
# All methods in five settings on what comes with fedotp, twelve runs each, paired:
#
#   sh recipes/field/study.sh runs/field              # every setting; again: goes on where it was stopped
#   sh recipes/field/study.sh runs/field novel --jobs 4
#
# After the folder: one setting (fifty, two-classes, vendors, novel, left-out) or "all", then options for every command.
# Each method has the learning rate that was best among four on splits 100 and 101 of the first setting (rates.csv).
set -eu
folder=$1
only=${2:-all}
[ $# -lt 2 ] && shift || shift 2

methods=zeroshot,fedotp,fedotp:rule=classical,fedotp:rule=average,fedotp:mass=0.5
methods=$methods,coop,promptfl,promptfl-ft,promptfl-fedprox,promptfl-fedper
methods=$methods,promptfl-fedamp:optimizer.lr=0.03,pfedprompt:optimizer.lr=0.003,promptfolio
methods=$methods,fedpgp:optimizer.lr=0.03,fedpha:optimizer.lr=0.01,fedmgp:optimizer.lr=0.01
methods=$methods,pfedmoap:optimizer.lr=0.003,fedtpg:optimizer.lr=0.03
methods=$methods,fedclip:optimizer.name=adam:optimizer.lr=0.01

run() { # SETTING PRESET options
    setting=$1 preset=$2
    shift 2
    case $only in all | "$setting" | "${setting%%/*}") ;; *) return 0 ;; esac
    python -m fedotp compare "$preset" --methods $methods --against fedotp --set optimizer.lr=0.1 \
        --out "$folder/$setting" "$@"
}

dirichlet='--set partition.scheme=dirichlet --set partition.n_clients=50 --set partition.alpha=0.5'
pairs='--splits 0..5 --seeds 0,1'
run fifty demo $dirichlet $pairs --set federation.rounds=30 "$@"
run two-classes demo $pairs "$@"
# one client per vendor is one split
run vendors demo --set data.dataset=emoji --set partition.scheme=domain --seeds 0..11 "$@"
run novel demo-novel $pairs "$@"
for vendor in fluent noto openmoji twemoji; do
    run left-out/$vendor demo-vendors --set federation.holdout=$vendor --seeds 0,1,2 "$@"
done
