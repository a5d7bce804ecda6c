// x is (samples, channels, spatial), contiguous; a group is `channels / groups` neighbouring channels of one sample.
struct Shape {
  int64_t samples;
  int64_t channels;
  int64_t groups;
  int64_t spatial;
{% if pitched %}
  int64_t pitch;  // from a row of x to the next, in memory
{% endif %}
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  Element* x;       // like x
  Weight* weight;  // (channels)
  Weight* bias;    // (channels)
{% if sums_dx %}
  float* shift;   // (channels), of what was added to x channel by channel: sums over x's gradient, which it wants too
{% endif %}
};

// Floats of scratch memory that launch_backward wants.
int64_t backward_scratch(const Shape& shape);

// Writes (never accumulates) the wanted gradients.
LaunchStatus launch_backward(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream);
