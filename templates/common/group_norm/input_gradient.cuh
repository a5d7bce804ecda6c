// dx = {{ "activate'(x) * " if activated else "" }}rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight, the means over the group
struct InputGradient {
{% if activated %}
  Activate activate;
{% endif %}
  float mean;
  float rstd;
  float weight;
  float mean_dy;       // mean(dy * weight)
  float mean_dy_xhat;  // mean(dy * weight * xhat)
  __device__ float operator()(float dy, float x) const {
{% if activated %}
    const Activation a = activate.with_slope(x);
    const float xhat = (a.value - mean) * rstd;
    return a.slope * (rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat));
{% else %}
    const float xhat = (x - mean) * rstd;
    return rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat);
{% endif %}
  }
};
