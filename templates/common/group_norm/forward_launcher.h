// Floats of scratch memory that launch_forward wants.
int64_t forward_scratch(const Shape& shape);

// Writes y like x, and mean and rstd of what is normalised, each (samples, groups).
LaunchStatus launch_forward(const float* x, const Shift& shift, const float* weight, const float* bias,
                            const Shape& shape, float eps, float* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream);
