#!/bin/sh
# Methods on OpenAI's image tower, twelve runs each, paired, every result with and without the class prior:
#
#   sh recipes/eyes/study.sh runs/eyes DATA            # all settings; DATA is made by data.py
#   sh recipes/eyes/study.sh runs/eyes DATA rates      # what chose the learning rates
#   sh recipes/eyes/study.sh runs/eyes DATA space      # feature space and context vectors, on the embedded backbone
#   sh recipes/eyes/study.sh runs/eyes DATA dispute    # zero-shot on Office-Caltech10 with the defects of published code
#
# The same command again resumes what was stopped. README.md beside this file has the rules.
set -eu
folder=$1 data=$2 only=${3:-all}
[ $# -lt 3 ] && shift 2 || shift 3

prompts=coop,promptfl,promptfolio,fedpgp,fedotp,fedotp:mass=0.5,fedotp:rule=classical,fedotp:rule=average
others=personal-ridge,personal-ridge:evaluation.prior=0,zeroshot,ridge,fedclip
rate=${RATE:-0.1} # of prompts in feature space: README.md

compare() { # FOLDER PRESET METHODS options
    out=$1 preset=$2 methods=$3
    shift 3
    python -m fedotp compare "$preset" --methods "$methods" --out "$folder/$out" --quiet "$@"
}

run() { # SETTING options
    setting=$1
    shift
    case $only in all | "$setting") ;; *) return 0 ;; esac
    set -- --set backbone.name="$folder/clip.safetensors" --set prompt.space=features "$@"
    compare "$setting" demo $others "$@"
    compare "$setting" demo $prompts --set optimizer.lr="$rate" "$@"
}

pairs='--splits 20..25 --seeds 0,1'
one='--seeds 0..11' # a division by domain is one split
cifar="--set data.dataset=$data/cifar --set partition.scheme=dirichlet --set partition.alpha=0.5 --set evaluation.every=0"
office="--set data.dataset=folder --set data.root=$data/office" # eight of the ten classes: not the known data set
by='--set partition.scheme='
run real-cifar $pairs $cifar --set partition.n_clients=100 --set federation.participation=0.1 \
    --set federation.rounds=150 "$@"
run real-fifty $pairs --set partition.scheme=dirichlet --set partition.alpha=0.5 --set evaluation.every=0 \
    --set partition.n_clients=50 "$@" # on cifar10-mini
run real-sampled $pairs --set partition.scheme=dirichlet --set partition.alpha=0.5 --set evaluation.every=0 \
    --set partition.n_clients=100 --set federation.participation=0.1 --set federation.rounds=150 "$@" # likewise
run real-few $pairs $cifar --set partition.n_clients=10 --set partition.shots=8 "$@"
run real-many $pairs $cifar --set partition.n_clients=200 --set partition.shots=200 "$@"
run real-office $one $office ${by}domain "$@"
run real-office-labels $pairs $office ${by}domain-dirichlet --set partition.n_clients=12 --set partition.alpha=0.1 "$@"
run real-pacs $one --set data.dataset="$data/PACS" ${by}domain "$@"
run real-pets $pairs --set data.dataset="$data/pets" ${by}pathological --set partition.n_clients=10 \
    --set partition.shots=16 --set federation.local_epochs=5 "$@"
run real-caltech $pairs --set data.dataset=folder --set data.root="$data/caltech" ${by}pathological \
    --set partition.n_clients=10 --set partition.shots=16 --set federation.local_epochs=5 "$@"

learned='coop promptfl promptfolio fedpgp fedotp'
tried() { # options of each: all rates of all methods
    for method in $learned; do
        for rate in 0.01 0.03 0.1 0.3 1 3 10 30; do printf '%s' ",$method:prompt.space=features:optimizer.lr=$rate"; done
    done
}
case $only in
dispute)
    table="--set backbone.name=$folder/clip.safetensors --set evaluation.every=0"
    names='--set authors.shuffled_names=true' labels='--set authors.mispaired_labels=true' # names: an order for each seed
    compare dispute/correct demo zeroshot $table --seeds 0..11 $office ${by}domain "$@"
    compare dispute/names demo zeroshot $table --seeds 0..11 $office ${by}domain $names "$@"
    several="--splits 0..11 --seeds 0..2 $office ${by}domain-dirichlet --set partition.n_clients=12 --set partition.alpha=0.1"
    compare dispute/several-correct demo zeroshot $table $several "$@"
    compare dispute/several-names demo zeroshot $table $several $names "$@"
    compare dispute/several-labels demo zeroshot $table $several $labels "$@"
    compare dispute/several-both demo zeroshot $table $several $names $labels "$@"
    ;;
rates)
    chosen='--splits 100,101 --seeds 0 --set evaluation.every=0'
    compare rates demo "zeroshot$(tried)" $chosen $cifar --set partition.n_clients=100 \
        --set backbone.name="$folder/clip.safetensors" "$@"
    compare rates-space demo-sites "zeroshot$(tried)" $chosen "$@"
    ;;
space)
    methods=
    for method in $learned; do methods=$methods,$method,$method:prompt.space=features:optimizer.lr=$rate; done
    compare space demo-sites "${methods#,}" $pairs --set evaluation.every=0 "$@"
    ;;
esac
