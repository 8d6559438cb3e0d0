/* The floor of benchmarks/life.py: the fewest calls of the driver for a library's kernels, in C, each of them timed.

   life_floor DIRECTORY COUNT ROUNDS [library]: DIRECTORY has 0.cubin to COUNT-1.cubin, each with the kernel k0 to
   k<COUNT-1> of (const float *, const float *, float *, int), and one.cubin with all of them. Kernels are found in a
   CUmodule, or with "library" in a CUlibrary. Everything printed is JSON; times are microseconds for each kernel. libcuda is opened by dlopen, so this compiles without CUDA's headers:
   cc -O2 life_floor.c -o life_floor -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t device_pointer;
static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *), (*cuCtxSynchronize)(void), (*cuMemAlloc)(device_pointer *, size_t);
static int (*cuLibraryLoadData)(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
static int (*cuLibraryGetKernel)(void **, void *, const char *);
static int (*cuModuleLoadData)(void **, const void *), (*cuModuleGetFunction)(void **, void *, const char *);
static int is_library;
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                             void **);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void check(int status, const char *call) {
  if (!status) return;
  fprintf(stderr, "%s: %d\n", call, status);
  exit(1);
}

static void *find(void *driver, const char *name) {
  void *found = dlsym(driver, name);
  if (found) return found;
  fprintf(stderr, "the driver has no %s\n", name);
  exit(1);
}

static void *image(const char *directory, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.cubin", directory, name);
  FILE *file = fopen(path, "rb");
  if (!file) exit(2);
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  char *data = malloc(size);
  if (fread(data, 1, size, file) != size) exit(2);
  fclose(file);
  return data;
}

static int compare(const void *left, const void *right) {
  double difference = *(const double *)left - *(const double *)right;
  return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

static void load_image(void **loaded, const void *image) {
  if (is_library) check(cuLibraryLoadData(loaded, image, 0, 0, 0, 0, 0, 0), "cuLibraryLoadData");
  else check(cuModuleLoadData(loaded, image), "cuModuleLoadData");
}

static void find_kernel(void **kernel, void *loaded, const char *name) {
  if (is_library) check(cuLibraryGetKernel(kernel, loaded, name), "cuLibraryGetKernel");
  else check(cuModuleGetFunction(kernel, loaded, name), "cuModuleGetFunction");
}

/* One way through the kernels: load and find (or find alone), launch ROUNDS times each. */
static void drive(const char *tag, char **images, void *one, void **kernels, int count, int rounds) {
  static device_pointer x, y, z;
  if (!x) check(cuMemAlloc(&x, 128) || cuMemAlloc(&y, 128) || cuMemAlloc(&z, 128), "cuMemAlloc");
  int n = 32;
  void *parameters[] = {&x, &y, &z, &n};
  double load = 0, find_ = 0, *each = malloc(sizeof(double) * (size_t)count), times[3] = {0, 0, 0}, first_median = 0;
  for (int i = 0; i < count; i++) {
    void *loaded_image = one;
    char name[16];
    snprintf(name, sizeof name, "k%d", i);
    double start = now();
    if (images) load_image(&loaded_image, images[i]);
    double loaded = now();
    find_kernel(&kernels[i], loaded_image, name);
    load += loaded - start;
    find_ += now() - loaded;
    each[i] = now() - start;
  }
  qsort(each, (size_t)count, sizeof(double), compare);
  double load_median = each[count / 2];
  double launches = 0;
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < count; i++) {
      double start = now();
      check(cuLaunchKernel(kernels[i], 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0), "cuLaunchKernel");
      double took = now() - start;
      times[round < 2 ? round : 2] += took;
      launches += took;
      if (!round) each[i] = took;
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    if (!round) {
      qsort(each, (size_t)count, sizeof(double), compare);
      first_median = each[count / 2];
    }
  }
  printf("\"%s driver's load\": %.3f, \"%s driver's find\": %.3f, \"%s load\": %.3f, \"%s load median\": %.3f, \"%s first\": %.3f, "
         "\"%s first median\": %.3f, \"%s second\": %.3f, \"%s later\": %.3f, \"%s all ms\": %.3f",
         tag, load / count, tag, find_ / count, tag, (load + find_) / count, tag, load_median, tag, times[0] / count, tag, first_median, tag,
         times[1] / count, tag, times[2] / count / (rounds - 2), tag, (load + find_ + launches) / 1000);
  free(each);
}

int main(int count_, char **arguments) {
  if (count_ < 4) return 2;
  int count = atoi(arguments[2]), rounds = atoi(arguments[3]), device;
  is_library = count_ > 4 && !strcmp(arguments[4], "library");
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *one;
  if (!driver) return 3;
  cuInit = find(driver, "cuInit");
  cuDeviceGet = find(driver, "cuDeviceGet");
  cuDevicePrimaryCtxRetain = find(driver, "cuDevicePrimaryCtxRetain");
  cuCtxSetCurrent = find(driver, "cuCtxSetCurrent");
  cuCtxSynchronize = find(driver, "cuCtxSynchronize");
  cuMemAlloc = find(driver, "cuMemAlloc_v2");
  cuLibraryLoadData = find(driver, "cuLibraryLoadData");
  cuLibraryGetKernel = find(driver, "cuLibraryGetKernel");
  cuModuleLoadData = find(driver, "cuModuleLoadData");
  cuModuleGetFunction = find(driver, "cuModuleGetFunction");
  cuLaunchKernel = find(driver, "cuLaunchKernel");
  char **images = malloc(sizeof(char *) * (size_t)count), name[16];
  void **kernels = malloc(sizeof(void *) * (size_t)count);
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "%d", i);
    images[i] = image(arguments[1], name);
  }
  void *whole = image(arguments[1], "one");
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  printf("{");
  drive("modules", images, 0, kernels, count, rounds);
  load_image(&one, whole);
  printf(", ");
  drive("one", 0, one, kernels, count, rounds);
  printf("}\n");
  return 0;
}
