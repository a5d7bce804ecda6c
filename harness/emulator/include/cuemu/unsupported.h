// Calls that the emulator refuses by name. They fail to compile only where a source uses them.
#pragma once

#include <type_traits>

namespace cuemu {
template <typename...>
inline constexpr bool kNever = false;
}

#define CUEMU_REFUSE(name, construct, remedy)                                              \
  template <typename... Arguments>                                                         \
  inline int name(Arguments&&...) {                                                        \
    static_assert(::cuemu::kNever<Arguments...>, "cuemu-unsupported: " construct ": " remedy); \
    return 0;                                                                              \
  }

CUEMU_REFUSE(cudaStreamBeginCapture, "CUDA graphs", "launch the kernels directly")
CUEMU_REFUSE(cudaGraphLaunch, "CUDA graphs", "launch the kernels directly")
CUEMU_REFUSE(cudaGraphInstantiate, "CUDA graphs", "launch the kernels directly")
CUEMU_REFUSE(cudaCreateTextureObject, "textures", "read global memory")
CUEMU_REFUSE(cudaBindTexture, "textures", "read global memory")
CUEMU_REFUSE(cudaCreateSurfaceObject, "surfaces", "read and write global memory")
CUEMU_REFUSE(tex1Dfetch, "textures", "read global memory")
CUEMU_REFUSE(cuTensorMapEncodeIm2col, "tensor maps of the mode im2col", "use cuTensorMapEncodeTiled")
CUEMU_REFUSE(cudaMallocArray, "CUDA arrays", "use cudaMalloc")
#undef CUEMU_REFUSE

#define CUEMU_REFUSE_WIDE(name, ...)                                                                                \
  template <typename Wide>                                                                                         \
  inline std::enable_if_t<sizeof(Wide) == 16, Wide> name(Wide*, __VA_ARGS__) {                                     \
    static_assert(::cuemu::kNever<Wide>, "cuemu-unsupported: " #name " on 16 bytes: use two words and a lock");     \
    return {};                                                                                                     \
  }
CUEMU_REFUSE_WIDE(atomicExch, Wide)
CUEMU_REFUSE_WIDE(atomicExch_block, Wide)
CUEMU_REFUSE_WIDE(atomicExch_system, Wide)
CUEMU_REFUSE_WIDE(atomicCAS, Wide, Wide)
CUEMU_REFUSE_WIDE(atomicCAS_block, Wide, Wide)
CUEMU_REFUSE_WIDE(atomicCAS_system, Wide, Wide)
#undef CUEMU_REFUSE_WIDE
