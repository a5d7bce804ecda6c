#pragma once
#include <ATen/cuda/Atomic.cuh>
#include <THC/THC.h>
