// Made into device.o and libdevice.a by nvcc 13.0: see README.md beside them.
extern "C" __device__ int twice(int x) { return 2 * x; }
extern "C" __device__ int thrice(int x) { return 3 * x; }
