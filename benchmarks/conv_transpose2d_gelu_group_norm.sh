#!/usr/bin/env bash
# Figures of the transposed convolution with GELU and group norm behind it, on one GPU.
# From the repository: bash benchmarks/conv_transpose2d_gelu_group_norm.sh
set -u
export HARNESS_HOME=${HARNESS_HOME:-$(mktemp -d)}
problem=conv_transpose2d_gelu_group_norm
say() { printf '\n== %s\n' "$*"; }
timed() {
    local start=$EPOCHREALTIME
    "$@"
    local code=$?
    echo "exit $code after $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s"
}
for solution in aten aten_one_kernel direct; do
    python3 -m harness render $problem --variant $solution -o "$HARNESS_HOME.$solution.py"
    say "$solution, full size"
    timed python3 -m harness evaluate "$HARNESS_HOME.$solution.py" --problem $problem --device cuda:0 --case full --json > "$HARNESS_HOME.json"
    grep '^exit' "$HARNESS_HOME.json"
    grep '^{' "$HARNESS_HOME.json" | python3 benchmarks/figures.py
done
say "settings behind the convolution"
python3 -m benchmarks.sweep $problem threads=256,512 unroll=2,4 tiles_per_block=4,16
say "settings of our own convolution"
python3 -m benchmarks.sweep $problem convolution=direct gelu=pass,epilogue block_pixels=256,512 weight_pixels=16,32
say "every other case"
cases=(cpu odd stride_2 kernel_1 kernel_1_stride_3 kernel_2_stride_2 kernel_5 kernel_5_stride_3 one_group instance one_sample)
timed python3 -m harness evaluate $problem --device cuda:0 "${cases[@]/#/--case=}"
