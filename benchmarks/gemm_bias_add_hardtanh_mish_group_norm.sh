#!/usr/bin/env bash
# Figures of the linear layer with Hardtanh, Mish and group norm behind it, on one GPU.
# From the repository: bash benchmarks/gemm_bias_add_hardtanh_mish_group_norm.sh
set -u
export HARNESS_HOME=${HARNESS_HOME:-$(mktemp -d)}
problem=gemm_bias_add_hardtanh_mish_group_norm
say() { printf '\n== %s\n' "$*"; }
timed() {
    local start=$EPOCHREALTIME
    "$@"
    local code=$?
    echo "exit $code after $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s"
}
for solution in split aten tiled; do
    python3 -m harness render $problem --variant $solution -o "$HARNESS_HOME.$solution.py"
    say "$solution, full size, cold, then warm"
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem $problem --device cuda:0 --case full --json > "$HARNESS_HOME.json"
    grep '^exit' "$HARNESS_HOME.json"
    grep '^{' "$HARNESS_HOME.json" | python3 benchmarks/figures.py
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem $problem --device cuda:0 --case full
done
say "figures of both, full size"
python3 -m harness evaluate $problem --device cuda:0 --case full --json | python3 benchmarks/figures.py
say "groups longer than a warp holds"
python3 -m harness evaluate $problem --device cuda:0 --set num_groups=8 --json | python3 benchmarks/figures.py
say "settings behind the product"
python3 -m benchmarks.sweep $problem threads=128,256,512 rows_per_block=8,16,32 rows_in_flight=1,2
say "settings of the product"
python3 -m benchmarks.sweep $problem gemm=tiled block_k=8,16 block_m=64,128 block_n=64,128
say "every case"
timed python3 -m harness evaluate $problem --device cuda:0
