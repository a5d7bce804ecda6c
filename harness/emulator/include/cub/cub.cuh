// Stands in for CUB: the algorithms of warps and blocks that the emulator has.
#pragma once

#include "block/block_discontinuity.cuh"
#include "block/block_exchange.cuh"
#include "block/block_histogram.cuh"
#include "block/block_load.cuh"
#include "block/block_radix_sort.cuh"
#include "block/block_raking_layout.cuh"
#include "block/block_reduce.cuh"
#include "block/block_scan.cuh"
#include "block/block_store.cuh"
#include "util_ptx.cuh"
#include "warp/warp_exchange.cuh"
#include "warp/warp_reduce.cuh"
#include "warp/warp_scan.cuh"
