// Replaces torch/all.h. If a build with it fails, the harness repeats the build with the original.
#pragma once
#include <lean_torch.h>
