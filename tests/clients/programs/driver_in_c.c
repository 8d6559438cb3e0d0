/* A program in C that links libcuda, with PTX in it. */

#include <stdio.h>

typedef unsigned long long Address;
int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(Address *, unsigned long), cuMemFree_v2(Address);
int cuMemcpyHtoD_v2(Address, const void *, unsigned long), cuMemcpyDtoH_v2(void *, Address, unsigned long);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuCtxSynchronize(void);

static const char *ptx =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry square(.param .u64 p) {\n"
    "  .reg .b32 %r<6>; .reg .b64 %d<4>;\n"
    "  ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.s32 %r4, %r1, %r2, %r3; mul.wide.s32 %d2, %r4, 4; add.s64 %d3, %d1, %d2;\n"
    "  ld.global.u32 %r5, [%d3]; mul.lo.s32 %r5, %r5, %r5; st.global.u32 [%d3], %r5; ret;\n"
    "}\n";

#define CHECKED(call)                                   \
  do {                                                  \
    int answer = call;                                  \
    if (answer) return printf("%s: %d\n", #call, answer), 1; \
  } while (0)

int main(void) {
  int device, numbers[512];
  void *context, *module, *kernel;
  Address at;
  for (int k = 0; k < 512; k++) numbers[k] = k;
  CHECKED(cuInit(0));
  CHECKED(cuDeviceGet(&device, 0));
  CHECKED(cuCtxCreate_v2(&context, 0, device));
  CHECKED(cuModuleLoadData(&module, ptx));
  CHECKED(cuModuleGetFunction(&kernel, module, "square"));
  CHECKED(cuMemAlloc_v2(&at, sizeof numbers));
  CHECKED(cuMemcpyHtoD_v2(at, numbers, sizeof numbers));
  void *arguments[] = {&at};
  CHECKED(cuLaunchKernel(kernel, 4, 1, 1, 128, 1, 1, 0, 0, arguments, 0));
  CHECKED(cuCtxSynchronize());
  CHECKED(cuMemcpyDtoH_v2(numbers, at, sizeof numbers));
  CHECKED(cuMemFree_v2(at));
  CHECKED(cuCtxDestroy_v2(context));
  for (int k = 0; k < 512; k++)
    if (numbers[k] != k * k) return printf("%d: %d\n", k, numbers[k]), 1;
  return 0;
}
