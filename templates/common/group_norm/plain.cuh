// Group norm by itself: what is normalised of an element is the element.

// An element as it is normalised, and its derivative by the element in memory.
struct Activation {
  float value;
  float slope;
};

struct Activate {
  __device__ float operator()(float x) const { return x; }
  __device__ Activation with_slope(float x) const { return {x, 1.0f}; }
};

__device__ inline Activate activate_of(const Shift&, int64_t /*channel*/) { return {}; }
