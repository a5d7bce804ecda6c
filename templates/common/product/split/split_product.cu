#ifdef SM_90A
{% include "common/barriers.cuh" %}

{% include "common/warpgroup.cuh" %}

{% include "common/product/split/tensor_cores.cuh" %}

{% include "common/product/split/tiles.cuh" %}

{% include "common/product/split/splitting.cuh" %}

{% include "common/product/split/beside.cuh" %}

{% include "common/product/split/multiply.cuh" %}

{% include "common/product/split/launch.cuh" %}

#else  // no tensor cores of compute capability 9.0
int64_t split_scratch(const Operand& /*left*/, const Operand& /*right*/, int64_t /*k*/, int /*device*/) { return 0; }

LaunchStatus launch_split_product(const Operand& /*left*/, const Operand& /*right*/, int64_t /*k*/, float* /*target*/,
                                  uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"multiply_split", "it was not compiled"};
}
#endif
