/* A driver of CUDA that does nothing and counts what it is asked: one GPU of compute capability 9.0, no work done.

   It answers what cujit, cuda.core and a program in C ask while they load cubins and launch kernels, and reads of a cubin
   only the names and the parameters of its kernels. At exit it writes each call that was made, and how often, to the
   file that NULL_DRIVER_CALLS names; null_driver_mark(name) writes and clears the counts under a name before that. Built by
   tests/null_driver.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, INVALID_VALUE = 1, NOT_FOUND = 500 };

static struct { const char *name; long count; } calls[256];

static void count(const char *name) {
  for (int i = 0; i < 256; i++) {
    if (!calls[i].name) calls[i].name = name;
    if (calls[i].name == name || !strcmp(calls[i].name, name)) {
      calls[i].count++;
      return;
    }
  }
}

EXPORT void null_driver_mark(const char *mark) {
  const char *path = getenv("NULL_DRIVER_CALLS");
  FILE *file = path ? fopen(path, "a") : 0;
  for (int i = 0; i < 256; i++) {
    if (file && calls[i].count) fprintf(file, "%s %s %ld\n", mark, calls[i].name, calls[i].count);
    calls[i].count = 0;
  }
  if (file) fclose(file);
}

__attribute__((destructor)) static void at_exit(void) { null_driver_mark("exit"); }

#define CALL(name, ...) EXPORT int name(__VA_ARGS__) { count(#name);
#define DONE return OK; }

static char context_, pool_;
static void *current;

CALL(cuInit, unsigned flags) (void)flags; DONE
CALL(cuDriverGetVersion, int *version) *version = 13000; DONE
CALL(cuGetExportTable, const void **table, const void *id) (void)id; *table = 0; return NOT_FOUND; } /* NVRTC asks */
CALL(cuDeviceGetCount, int *number) *number = 1; DONE
CALL(cuDeviceGet, int *device, int ordinal) *device = ordinal; DONE
CALL(cuDeviceGetName, char *name, int length, int device) (void)device; snprintf(name, (size_t)length, "null"); DONE
CALL(cuDeviceGetUuid_v2, char *uuid, int device) (void)device; memset(uuid, 0, 16); DONE
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device) (void)device; *bytes = 1ull << 37; DONE
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
  (void)device;
  static const int known[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535},
    {8, 49152}, {10, 32}, {16, 132}, {39, 2048}, {75, 9}, {76, 0}, {81, 233472}, {97, 232448}, {82, 65536}, {12, 65536}};
  *value = 1;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i][0] == attribute) *value = known[i][1];
DONE
CALL(cuDevicePrimaryCtxRetain, void **context, int device) (void)device; *context = &context_; DONE
CALL(cuDevicePrimaryCtxRelease_v2, int device) (void)device; DONE
CALL(cuCtxGetCurrent, void **context) *context = current; DONE
CALL(cuCtxSetCurrent, void *context) current = context; DONE
CALL(cuCtxPushCurrent_v2, void *context) current = context; DONE
CALL(cuCtxPopCurrent_v2, void **context) if (context) *context = current; DONE
CALL(cuCtxGetDevice, int *device) *device = 0; DONE
CALL(cuCtxSynchronize, void) DONE
CALL(cuCtxGetStreamPriorityRange, int *least, int *greatest) *least = 0; *greatest = -5; DONE
CALL(cuCtxGetId, void *context, uint64_t *id) (void)context; *id = 1; DONE
CALL(cuStreamSynchronize, void *stream) (void)stream; DONE
CALL(cuStreamCreateWithPriority, void **stream, unsigned flags, int priority) (void)flags, (void)priority; *stream = &pool_; DONE
CALL(cuStreamCreate, void **stream, unsigned flags) (void)flags; *stream = &pool_; DONE
CALL(cuStreamDestroy_v2, void *stream) (void)stream; DONE
CALL(cuStreamGetCtx, void *stream, void **context) (void)stream; *context = &context_; DONE
CALL(cuStreamIsCapturing, void *stream, int *status) (void)stream; *status = 0; DONE
CALL(cuThreadExchangeStreamCaptureMode, int *mode) (void)mode; DONE
static uint64_t memory = 1ull << 40;
static uint64_t some(size_t bytes) { uint64_t at = memory; memory += (bytes + 511) / 256 * 256; return at; }
CALL(cuMemAlloc_v2, uint64_t *address, size_t bytes) *address = some(bytes); DONE
CALL(cuMemFree_v2, uint64_t address) (void)address; DONE
CALL(cuMemAllocAsync, uint64_t *address, size_t bytes, void *stream) (void)stream; *address = some(bytes); DONE
CALL(cuMemAllocFromPoolAsync, uint64_t *address, size_t bytes, void *pool, void *stream)
  (void)stream, (void)pool; *address = some(bytes); DONE
CALL(cuMemFreeAsync, uint64_t address, void *stream) (void)address, (void)stream; DONE
CALL(cuMemPoolCreate, void **pool, void *properties) (void)properties; *pool = &pool_; DONE
CALL(cuMemPoolDestroy, void *pool) (void)pool; DONE
CALL(cuDeviceGetDefaultMemPool, void **pool, int device) (void)device; *pool = &pool_; DONE
CALL(cuDeviceGetMemPool, void **pool, int device) (void)device; *pool = &pool_; DONE
CALL(cuMemGetMemPool, void **pool, void *location, int type) (void)location, (void)type; *pool = &pool_; DONE
CALL(cuMemPoolSetAttribute, void *pool, int attribute, void *value) (void)pool, (void)attribute, (void)value; DONE
CALL(cuMemPoolGetAttribute, void *pool, int attribute, void *value) (void)pool, (void)attribute; *(uint64_t *)value = 0; DONE
CALL(cuMemPoolTrimTo, void *pool, size_t bytes) (void)pool, (void)bytes; DONE
CALL(cuMemHostAlloc, void **address, size_t bytes, unsigned flags) (void)flags; *address = malloc(bytes); DONE
CALL(cuMemFreeHost, void *address) free(address); DONE
CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t bytes) (void)to, (void)from, (void)bytes; DONE
CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t bytes) (void)from; memset(to, 0, bytes); DONE
CALL(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t bytes, void *stream)
  (void)to, (void)from, (void)bytes, (void)stream; DONE
CALL(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t bytes, void *stream)
  (void)from, (void)stream; memset(to, 0, bytes); DONE
CALL(cuMemsetD8_v2, uint64_t to, unsigned char value, size_t bytes) (void)to, (void)value, (void)bytes; DONE
CALL(cuMemsetD8Async, uint64_t to, unsigned char value, size_t bytes, void *stream)
  (void)to, (void)value, (void)bytes, (void)stream; DONE
CALL(cuEventCreate, void **event, unsigned flags) (void)flags; *event = &pool_; DONE
CALL(cuEventDestroy_v2, void *event) (void)event; DONE
CALL(cuEventRecord, void *event, void *stream) (void)event, (void)stream; DONE
CALL(cuEventQuery, void *event) (void)event; DONE
CALL(cuEventSynchronize, void *event) (void)event; DONE
CALL(cuStreamWaitEvent, void *stream, void *event, unsigned flags) (void)stream, (void)event, (void)flags; DONE
CALL(cuGetErrorString, int status, const char **text) (void)status; *text = "the null driver refused"; DONE
CALL(cuGetErrorName, int status, const char **text) (void)status; *text = "CUDA_ERROR_OF_THE_NULL_DRIVER"; DONE
CALL(cuLogsDumpToMemory, unsigned *iterator, char *buffer, size_t *size, unsigned flags)
  (void)flags;
  unsigned first = iterator ? *iterator : 0;  /* one more line each time that it is asked */
  *size = (size_t)snprintf(buffer, *size, "[CUDA][E] line %u\n", first + 1);
  if (iterator) *iterator = first + 1;
DONE
CALL(cuLogsCurrent, unsigned *iterator, unsigned flags) (void)flags; *iterator = 1; DONE
CALL(cuPointerGetAttribute, void *value, int attribute, uint64_t address) (void)attribute, (void)address; *(int *)value = 0; DONE

/* -- images: a library or a module is the copied cubin, a kernel its name and its section of .nv.info ----------------------------- */

struct Header { char id[16]; uint16_t type, machine; uint32_t version; uint64_t entry, phoff, shoff; uint32_t flags;
  uint16_t size, phsize, phnum, shsize, shnum, shstrndx; };
struct Section { uint32_t name, type; uint64_t flags, address, offset, size; uint32_t link, info; uint64_t align, entry; };
struct Kernel { char *name; const unsigned char *info; uint64_t info_bytes; struct Library *library; };
struct Library { int count; struct Kernel kernels[]; };

static int load(void **library, const char *data) {
  const struct Header *head = (const void *)data;
  if (memcmp(data, "\177ELF", 4)) return 200;
  const struct Section *sections = (const void *)(data + head->shoff);
  const char *names_ = data + sections[head->shstrndx].offset;
  struct Library *made = calloc(1, sizeof *made + head->shnum * sizeof *made->kernels);
  for (int i = 0; i < head->shnum; i++) {
    const char *name = names_ + sections[i].name;
    if (strncmp(name, ".nv.info.", 9)) continue;
    unsigned char *copy = malloc(sections[i].size);
    memcpy(copy, data + sections[i].offset, sections[i].size);
    made->kernels[made->count++] = (struct Kernel){strdup(name + 9), copy, sections[i].size, made};
  }
  *library = made;
  return OK;
}
static int find(void **kernel, struct Library *library, const char *name) {
  for (int i = 0; i < library->count; i++)
    if (!strcmp(library->kernels[i].name, name)) {
      *kernel = library->kernels + i;
      return OK;
    }
  return NOT_FOUND;
}
CALL(cuLibraryLoadData, void **library, const char *data, void *options, void **values, unsigned number, void *names,
     void **more, unsigned others)
  (void)options, (void)values, (void)number, (void)names, (void)more, (void)others;
  return load(library, data);
}
CALL(cuModuleLoadData, void **module, const char *data) return load(module, data); }
CALL(cuModuleLoadDataEx, void **module, const char *data, unsigned number, void *options, void **values)
  (void)number, (void)options, (void)values;
  return load(module, data);
}
CALL(cuModuleUnload, void *module) (void)module; DONE
CALL(cuModuleGetFunctionCount, unsigned *number, struct Library *module) *number = (unsigned)module->count; DONE
CALL(cuModuleEnumerateFunctions, void **functions, unsigned number, struct Library *module)
  for (unsigned i = 0; i < number; i++) functions[i] = module->kernels + i;
DONE
CALL(cuModuleGetFunction, void **function, struct Library *module, const char *name)
  return find(function, module, name);
}
CALL(cuModuleGetGlobal_v2, uint64_t *address, size_t *bytes, void *module, const char *name)
  (void)address, (void)bytes, (void)module, (void)name;
  return NOT_FOUND;
}
CALL(cuLibraryUnload, void *library) (void)library; DONE
CALL(cuLibraryGetModule, void **module, void *library) *module = library; DONE
CALL(cuLibraryGetKernelCount, unsigned *number, struct Library *library) *number = (unsigned)library->count; DONE
CALL(cuLibraryEnumerateKernels, void **kernels, unsigned number, struct Library *library)
  for (unsigned i = 0; i < number; i++) kernels[i] = library->kernels + i;
DONE
CALL(cuLibraryGetKernel, void **kernel, struct Library *library, const char *name)
  return find(kernel, library, name);
}
CALL(cuLibraryGetGlobal, uint64_t *address, size_t *bytes, void *library, const char *name)
  (void)address, (void)bytes, (void)library, (void)name;
  return NOT_FOUND;
}
CALL(cuKernelGetName, const char **name, struct Kernel *kernel) *name = kernel->name; DONE
CALL(cuFuncGetName, const char **name, struct Kernel *function) *name = function->name; DONE
CALL(cuKernelGetFunction, void **function, void *kernel) *function = kernel; DONE
CALL(cuFuncLoad, void *function) (void)function; DONE
CALL(cuKernelGetLibrary, void **library, struct Kernel *kernel) *library = kernel->library; DONE
static int attribute(int *value, int which) {
  static const int known[] = {1024, 0, 0, 0, 24, 90, 90, 0, 49152, -1, 0, 0, 0, 0, 0, 0};
  *value = which >= 0 && which < 16 ? known[which] : 0;
  return OK;
}
CALL(cuFuncGetAttribute, int *value, int which, void *function) (void)function; return attribute(value, which); }
CALL(cuKernelGetAttribute, int *value, int which, void *kernel, int device) (void)kernel, (void)device; return attribute(value, which); }
CALL(cuFuncSetAttribute, void *function, int which, int value) (void)function, (void)which, (void)value; DONE
CALL(cuKernelSetAttribute, int which, int value, void *kernel, int device)
  (void)kernel, (void)which, (void)value, (void)device; DONE
/* Records of KPARAM_INFO: format 4, attribute 0x17, 12 bytes: index, ordinal and offset, and size in the upper 14 bits. */
static int parameter(struct Kernel *kernel, size_t wanted, size_t *offset, size_t *bytes) {
  for (const unsigned char *at = kernel->info, *end = at + kernel->info_bytes; at + 4 <= end;) {
    uint16_t length = at[0] == 4 ? (uint16_t)(at[2] | at[3] << 8) : 0;
    if (at[0] == 4 && (at[1] == 0x17 || at[1] == 0x45)) {
      uint32_t words[3];
      memcpy(words, at + 4, 12);
      if ((words[1] & 0xffff) == wanted) {
        *offset = words[1] >> 16;
        if (bytes) *bytes = at[1] == 0x45 ? words[2] & 0xffff : words[2] >> 18;
        return OK;
      }
    }
    at += 4 + length;
  }
  return INVALID_VALUE;
}
CALL(cuKernelGetParamInfo, struct Kernel *kernel, size_t index, size_t *offset, size_t *bytes)
  return parameter(kernel, index, offset, bytes);
}
CALL(cuFuncGetParamInfo, struct Kernel *kernel, size_t index, size_t *offset, size_t *bytes)
  return parameter(kernel, index, offset, bytes);
}
CALL(cuKernelGetParamCount, struct Kernel *kernel, size_t *number)
  size_t offset;
  for (*number = 0; !parameter(kernel, *number, &offset, 0);) ++*number;
DONE
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *function, int threads, size_t bytes)
  (void)function, (void)threads, (void)bytes; *blocks = 8; DONE
CALL(cuOccupancyMaxPotentialBlockSize, int *grid, int *block, void *function, void *sizes, size_t bytes, int limit)
  (void)function, (void)sizes, (void)bytes, (void)limit; *grid = 132; *block = 256; DONE
CALL(cuOccupancyMaxPotentialClusterSize, int *size, void *function, void *config) (void)function, (void)config; *size = 8; DONE
CALL(cuOccupancyMaxActiveClusters, int *number, void *function, void *config) (void)function, (void)config; *number = 16; DONE
CALL(cuLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned bytes, void *stream, void **each, void **extra)
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)bytes, (void)stream, (void)each, (void)extra;
DONE
CALL(cuLaunchKernelEx, void *config, void *function, void **each, void **extra)
  (void)config, (void)function, (void)each, (void)extra; DONE

/* A name without its version stands for the newest that is here; what is not here is not found. */
CALL(cuGetProcAddress_v2, const char *name, void **address, int version, uint64_t flags, int *status)
  (void)version, (void)flags;
  char newer[128];
  snprintf(newer, sizeof newer, "%s_v2", name);
  static void *self;
  if (!self) {
    Dl_info info;
    dladdr((void *)cuInit, &info);
    self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  *address = dlsym(self, newer);
  if (!*address) *address = dlsym(self, name);
  if (status) *status = *address ? 0 : 1;
  return *address ? OK : NOT_FOUND;
}
