#!/usr/bin/env bash
# Figures of the linear layer with group norm, the minimum over features and a broadcast bias behind it, on one GPU.
# From the repository: bash benchmarks/gemm_group_norm_min_bias_add.sh
set -u
export HARNESS_HOME=${HARNESS_HOME:-$(mktemp -d)}
problem=gemm_group_norm_min_bias_add
say() { printf '\n== %s\n' "$*"; }
timed() {
    local start=$EPOCHREALTIME
    "$@"
    local code=$?
    echo "exit $code after $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s"
}
for solution in split aten tiled_epilogue tiled_separate_dense; do
    python3 -m harness render $problem --variant $solution -o "$HARNESS_HOME.$solution.py"
    say "$solution, full size, cold, then warm"
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem $problem --device cuda:0 --case full --json > "$HARNESS_HOME.json"
    grep '^exit' "$HARNESS_HOME.json"
    grep '^{' "$HARNESS_HOME.json" | python3 benchmarks/figures.py
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem $problem --device cuda:0 --case full --fresh
done
say "groups longer than a warp holds"
python3 -m harness evaluate $problem --device cuda:0 --set num_groups=16 --json | python3 benchmarks/figures.py
say "a bias of one row"
python3 -m harness evaluate $problem --device cuda:0 --set "bias_shape=(1, 8192)" --json | python3 benchmarks/figures.py
say "alternatives"
python3 benchmarks/sweep.py $problem gemm=aten,tiled statistics=pass,epilogue minimum=fused,separate backward=sparse,dense
say "settings behind the product"
python3 benchmarks/sweep.py $problem minimum=fused,separate threads=256,512 values_per_thread=4,8 rows_per_block=4,8,16
say "settings of the product"
python3 benchmarks/sweep.py $problem gemm=tiled statistics=pass,epilogue block_k=8,16 partial_depth=512,1024,4096
say "every case"
timed python3 -m harness evaluate $problem --device cuda:0
