// kind: overflow
// The offset of an image is multiplied in int before it is added to the pointer.
#include <cuda_runtime.h>

struct Shape {
  int channels, height, width;
};

// A ring of images: the offset in the endless stream is taken modulo the ring.
__global__ void stream_pixel(const float* ring, float* out, Shape shape, int first_image, int ring_pixels) {
  int image = first_image + blockIdx.x;
  int offset = image * shape.channels * shape.height * shape.width;  // BUG
  out[blockIdx.x * blockDim.x + threadIdx.x] = ring[((offset + threadIdx.x) % ring_pixels + ring_pixels) % ring_pixels];
}

extern "C" void run() {
  const int ring_pixels = 1000, images = 4;
  static float ring[ring_pixels];
  for (int i = 0; i < ring_pixels; ++i) ring[i] = i;
  float* d_ring;
  cudaMalloc(&d_ring, ring_pixels * sizeof(float));
  cudaMemcpy(d_ring, ring, ring_pixels * sizeof(float), cudaMemcpyHostToDevice);
  static float out[images * 32];
  float* d_out;
  cudaMalloc(&d_out, images * 32 * sizeof(float));
  Shape shape = {64, 112, 112};
  stream_pixel<<<images, 32>>>(d_ring, d_out, shape, 5000, ring_pixels);
  cudaMemcpy(out, d_out, images * 32 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_ring);
  cudaFree(d_out);
}
