"""Text that every compile of CUDA C++ includes before the first line."""

DEPENDENT_LAUNCH = """\
#if __cplusplus >= 201103L
template<int=0>__device__ __forceinline__ void cudaGridDependencySynchronize()
{asm volatile("griddepcontrol.wait;":::"memory");}
template<int=0>__device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion()
{asm volatile("griddepcontrol.launch_dependents;":::"memory");}
#endif
"""
"""Functions of programmatic dependent launches, which NVRTC declares in ``<cuda_device_runtime_api.h>`` only.

The functions of that header are not templates, so C++ prefers them to these.
"""
