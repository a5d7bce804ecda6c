// Four warps bring a pass's source into the ring: x as float32, converted on the way, or halves that a kernel before
// has written, by bulk copies.

// Where a warp puts its share of the slots, and since when it may.
template <Pass kPass>
struct CopyPlace {
  int slot = 0;
  int granule;  // of the ring
  int behind;   // slots from the last that reads what lay here before

  __device__ CopyPlace(const Correlation& c, int warp) : granule(warp) {
    behind = (Ring<kPass>::kPixels - c.farthest - (warp + 1) * kGranule + kSlot) / kSlot;
  }
  __device__ void advance() {
    ++slot;
    granule += kMirroredGranules;
    if (granule >= Ring<kPass>::kGranules) granule -= Ring<kPass>::kGranules;
  }
};

// A lane's pixel of x in a step; one beside the image counts as the sample's first, and is cleared later.
struct SourcePixel {
  const float* from;
  bool is_inside;

  __device__ SourcePixel(const Correlation& c, const float* sample, int step) {
    const int pixel = step * kSlot + static_cast<int>(threadIdx.x);
    const int row = pixel < 0 ? 0 : static_cast<int>(__umulhi(pixel, c.inverse_pitch));
    const int column = pixel - row * c.pitch;
    is_inside = pixel >= 0 && row < c.height && column < c.width;
    from = sample + (is_inside ? row * c.width + column : 0);
  }
};

constexpr int kHalfEights = kEights / 2;  // that are on their way while the other half is converted

// Half of a pixel's channels, from eight `first` on. Channels beyond the last are 0.
__device__ __forceinline__ void load_half(const SourcePixel& pixel, int64_t plane, int first, int channels,
                                          float (&values)[kHalfEights][kEight]) {
  asm volatile("" : "+l"(plane));  // or the compiler keeps an offset for each channel in registers
  const float* const from = pixel.from + first * kEight * plane;
  if ((first + kHalfEights) * kEight <= channels) {
#pragma unroll
    for (int i = 0; i < kHalfEights * kEight; ++i) values[i / kEight][i % kEight] = __ldg(from + i * plane);
  } else {
#pragma unroll
    for (int i = 0; i < kHalfEights * kEight; ++i) {
      values[i / kEight][i % kEight] = first * kEight + i < channels ? __ldg(from + i * plane) : 0.0f;
    }
  }
}

// Writes these as halves, `plane` bytes from an eight to the next; a second time `mirror` bytes on, unless that is 0.
__device__ __forceinline__ void store_half(const float (&values)[kHalfEights][kEight], bool is_inside, uint8_t* to,
                                           int plane, int mirror) {
#pragma unroll
  for (int e = 0; e < kHalfEights; ++e) {
    uint4 halves = eight_halves(values[e]);
    if (!is_inside) halves = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to + e * plane) = halves;
    if (mirror != 0) *reinterpret_cast<uint4*>(to + e * plane + mirror) = halves;
  }
}

__device__ __forceinline__ float largest_of(const float (&values)[kHalfEights][kEight], float largest) {
#pragma unroll
  for (int i = 0; i < kHalfEights * kEight; ++i) largest = fmaxf(largest, fabsf(values[i / kEight][i % kEight]));
  return largest;
}

__device__ __forceinline__ void scale_half(float (&values)[kHalfEights][kEight], float scale) {
#pragma unroll
  for (int i = 0; i < kHalfEights * kEight; ++i) values[i / kEight][i % kEight] *= scale;
}

template <Pass kPass>
__device__ inline void convert_slots(const Correlation& c, uint8_t* ring, SlotBarriers& barriers) {
  constexpr int kPlane = Ring<kPass>::kPlane;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t plane = static_cast<int64_t>(c.height) * c.width;
  CopyPlace<kPass> place(c, static_cast<int>(threadIdx.x) / kWarpSize);
  Stretch stretch;
  for (Stretches<kPass> stretches(c); stretches.next(stretch);) {
    const float* const sample = c.x + stretch.sample * c.sources * plane;
    const float scale = kPass == Pass::kRescue ? scale_of(scale_exponent(c.magnitudes[stretch.sample])) : 1.0f;
    const int end = stretch.first + stretch.count;
    float largest = 0.0f;
    float lower[kHalfEights][kEight];
    float upper[kHalfEights][kEight];
    SourcePixel pixel(c, sample, stretch.first - c.lead);
    load_half(pixel, plane, 0, c.sources, lower);
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < end; ++step) {
      load_half(pixel, plane, kHalfEights, c.sources, upper);
      const bool is_inside = pixel.is_inside;
      uint8_t* const to = ring + (place.granule * kGranule + lane) * kEightBytes;
      const int mirror = place.granule < kMirroredGranules ? Ring<kPass>::kPixels * kEightBytes : 0;
      if (kPass == Pass::kForward) largest = largest_of(lower, largest);
      if (kPass == Pass::kRescue) scale_half(lower, scale);
      if (place.slot >= place.behind) await_slot(barriers.done, place.slot - place.behind);
      store_half(lower, is_inside, to, kPlane, mirror);
      if (step + 1 < end) {
        pixel = SourcePixel(c, sample, step + 1);
        load_half(pixel, plane, 0, c.sources, lower);
      }
      if (kPass == Pass::kForward) largest = largest_of(upper, largest);
      if (kPass == Pass::kRescue) scale_half(upper, scale);
      store_half(upper, is_inside, to + kHalfEights * kPlane, kPlane, mirror);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers.full + place.slot % kSlotBarriers);
      place.advance();
    }
    if (kPass == Pass::kForward) {
      const unsigned magnitude = __reduce_max_sync(kAllLanes, __float_as_uint(largest));
      if (lane == 0) atomicMax(c.magnitudes + stretch.sample, magnitude);
    }
  }
}

// Copies a warp's share of a slot of the gradient's halves, one lane an eight of channels. Pixels beside the plane are
// left as they are: no pixel that counts meets them.
__device__ inline void copy_granule(const Correlation& c, int64_t sample, int step,
                                    const CopyPlace<Pass::kGradient>& place, uint8_t* ring, SlotBarriers& barriers) {
  using Ring = Ring<Pass::kGradient>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int wanted = step * kSlot + warp * kGranule + c.farthest;
  const int first = wanted < 0 ? 0 : wanted;
  const int end = wanted + kGranule < c.plane ? wanted + kGranule : c.plane;
  const int count = end > first ? end - first : 0;
  const bool is_mirrored = place.granule < kMirroredGranules;
  uint64_t* const full = barriers.full + place.slot % kSlotBarriers;
  if (lane == 0) barrier_expect(full, kEights * count * kEightBytes * (is_mirrored ? 2 : 1));
  __syncwarp();
  if (lane < kEights && count > 0) {
    uint8_t* const to = ring + lane * Ring::kPlane + (place.granule * kGranule + first - wanted) * kEightBytes;
    const uint8_t* const from =
        c.planes + ((sample * kEights + lane) * static_cast<int64_t>(c.plane) + first) * kEightBytes;
    bulk_load(to, from, count * kEightBytes, full);
    if (is_mirrored) bulk_load(to + Ring::kPixels * kEightBytes, from, count * kEightBytes, full);
  }
}

__device__ inline void copy_slots(const Correlation& c, uint8_t* ring, SlotBarriers& barriers) {
  CopyPlace<Pass::kGradient> place(c, static_cast<int>(threadIdx.x) / kWarpSize);
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < stretch.first + stretch.count; ++step) {
      if (place.slot >= place.behind) await_slot(barriers.done, place.slot - place.behind);
      copy_granule(c, stretch.sample, step, place, ring, barriers);
      place.advance();
    }
  }
}
