// Floats of scratch memory that launch_forward wants.
int64_t forward_scratch(const Shape& shape);

// Writes y like x, and mean and rstd of what is normalised, each (samples, groups).
LaunchStatus launch_forward(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream);
