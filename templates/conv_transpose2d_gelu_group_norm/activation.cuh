{% if shifted %}
// What is normalised of an element is GELU of it and of the convolution's bias, which is added here: for torch it would
// be one more pass over what the convolution wrote.
struct Activate {
  float shift;
  __device__ float operator()(float x) const { return gelu(x + shift); }
  __device__ Activation with_slope(float x) const { return gelu_with_slope(x + shift); }
};

__device__ inline Activate activate_of(const Shift& shift, int64_t channel) { return {shift.values[channel]}; }
{% else %}
// What is normalised of an element is GELU of it.
struct Activate {
  __device__ float operator()(float x) const { return gelu(x); }
  __device__ Activation with_slope(float x) const { return gelu_with_slope(x); }
};

__device__ inline Activate activate_of(int64_t /*channel*/) { return {}; }
{% endif %}
