#!/bin/sh
# All methods in twelve settings, twelve runs each, paired, every result with and without the class prior:
#
#   sh recipes/field/study.sh runs/field                 # every setting that needs no download
#   sh recipes/field/study.sh runs/field novel --jobs 4  # one setting, with options for `fedotp compare`
#   OFFICE=~/data/office_caltech10 sh recipes/field/study.sh runs/field office
#
# The same command again resumes what was stopped. README.md beside this file has the rules.
set -eu
folder=$1
only=${2:-all}
[ $# -lt 2 ] && shift || shift 2

methods=personal-ridge,personal-ridge:evaluation.prior=0,zeroshot,coop,promptfl,promptfl-ft,promptfl-fedprox,promptfl-fedper,promptfl-fedamp,pfedprompt
methods=$methods,fedotp,fedotp:mass=0.5,fedotp:rule=average,promptfolio,fedpgp,fedpha,fedmgp,pfedmoap,fedtpg,fedclip
methods=$methods,promptfl:federation.prior=1:evaluation.prior=1,fedotp:mass=0.5:federation.prior=1:evaluation.prior=1
methods=$methods,ridge,fedcof,ridge:features=both

run() { # SETTING PRESET options
    setting=$1 preset=$2
    shift 2
    case $only in all | "$setting") ;; *) return 0 ;; esac
    python -m fedotp compare "$preset" --methods $methods --out "$folder/$setting" --quiet "$@"
}

pairs='--splits 20..25 --seeds 0,1'
one='--seeds 0..11' # a division by domain is one split
by='--set partition.scheme='
run mild demo-sites $pairs --set partition.alpha=5 "$@"
run fifty demo-sites $pairs "$@"
run severe demo-sites $pairs --set partition.alpha=0.1 "$@"
run two-classes demo $pairs "$@"
run few-shots demo-sites $pairs --set partition.n_clients=10 --set partition.shots=8 "$@"
run many demo-sites $pairs --set partition.n_clients=200 "$@"
run changed demo-sites $pairs --set partition.n_clients=10 --set evaluation.views=personal,base "$@"
run novel demo-novel $pairs --set evaluation.views_every=0 "$@"
run vendors demo $one --set data.dataset=emoji ${by}domain "$@"
run vendors-labels demo $pairs --set data.dataset=emoji ${by}domain-dirichlet --set partition.n_clients=12 \
    --set partition.alpha=0.5 "$@"
if [ -n "${OFFICE:-}" ]; then
    run office demo $one --set data.dataset="$OFFICE" ${by}domain "$@"
    run office-labels demo $pairs --set data.dataset="$OFFICE" ${by}domain-dirichlet --set partition.n_clients=12 \
        --set partition.alpha=0.5 "$@"
fi
