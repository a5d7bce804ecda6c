#!/usr/bin/env bash
# Everything that benchmarks/README.md quotes about group norm, on one GPU. From the repository: bash benchmarks/group_norm.sh
set -u
export HARNESS_HOME=${HARNESS_HOME:-$(mktemp -d)}
say() { printf '\n== %s\n' "$*"; }
timed() {
    local start=$EPOCHREALTIME
    "$@"
    local code=$?
    echo "exit $code after $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s"
}
say doctor
timed python3 -m harness doctor --device cuda:0
for solution in fused two_kernels; do
    python3 -m harness render group_norm --variant $solution -o "$HARNESS_HOME.$solution.py"
    say "$solution, full size, cold, then warm"
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem group_norm --device cuda:0 --case full --json > "$HARNESS_HOME.json"
    grep '^exit' "$HARNESS_HOME.json"
    grep '^{' "$HARNESS_HOME.json" | python3 benchmarks/figures.py
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem group_norm --device cuda:0 --case full
done
say "figures of both, full size"
python3 -m harness evaluate group_norm --device cuda:0 --case full --json | python3 benchmarks/figures.py
say "past 2^31 elements"
python3 -m harness evaluate group_norm --device cuda:0 --set batch_size=136 --json | python3 benchmarks/figures.py
say "more than the device has"
timed python3 -m harness evaluate group_norm/fused --device cuda:0 --set batch_size=900
say "every case"
timed python3 -m harness evaluate group_norm --device cuda:0
