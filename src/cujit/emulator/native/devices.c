/* What the device says of itself. Python wrote it down at the start, so that a call waits for nobody: a thread may ask while
   another one holds Python's lock and waits for it. */

#include "state.h"

static Answer checked(const void *out, i32 device) {
  Answer answer = ready();
  if (answer) return answer;
  return !out ? RESULT_INVALID_VALUE : device ? RESULT_INVALID_DEVICE : RESULT_SUCCESS;
}

Answer cujit_cuDeviceGetCount(i32 *count) {
  Answer answer = checked(count, 0);
  if (!answer) *count = 1;
  return answer;
}

Answer cujit_cuDeviceGet(i32 *device, i32 ordinal) {
  Answer answer = checked(device, ordinal);
  if (!answer) *device = ordinal;
  return answer;
}

Answer cujit_cuDeviceGetName(char *text, i32 size, i32 device) {
  Answer answer = checked(text, device);
  if (answer || size <= 0) return answer ? answer : RESULT_INVALID_VALUE;
  u64 length = strlen(state.device.name), most = (u64)size - 1;
  memcpy(text, state.device.name, length = length < most ? length : most);
  text[length] = 0;
  return RESULT_SUCCESS;
}

Answer cujit_cuDeviceGetUuid(u64 *uuid, i32 device) {
  Answer answer = checked(uuid, device);
  if (!answer) memcpy(uuid, state.device.uuid, sizeof state.device.uuid);
  return answer;
}

Answer cujit_cuDeviceGetUuid_v2(u64 *uuid, i32 device) { return cujit_cuDeviceGetUuid(uuid, device); }

Answer cujit_cuDeviceTotalMem_v2(u64 *bytes, i32 device) {
  Answer answer = checked(bytes, device);
  if (!answer) *bytes = state.device.bytes;
  return answer;
}

Answer cujit_cuDeviceTotalMem(u32 *bytes, i32 device) {
  Answer answer = checked(bytes, device);
  if (!answer) *bytes = state.device.bytes < UINT32_MAX ? (u32)state.device.bytes : UINT32_MAX;
  return answer;
}

Answer cujit_cuDeviceComputeCapability(i32 *major, i32 *minor, i32 device) {
  Answer answer = checked(major && minor ? major : 0, device);
  if (answer) return answer;
  *major = state.device.major;
  *minor = state.device.minor;
  return RESULT_SUCCESS;
}

Answer cujit_cuDeviceGetAttribute(i32 *value, u32 attribute, i32 device) {
  Answer answer = ready();
  if (!answer && (attribute < 1 || attribute > state.device.count)) return RESULT_INVALID_VALUE;
  if (!answer) answer = checked(value, device);
  if (!answer) *value = state.device.attributes[attribute - 1];
  return answer;
}

/* As a structure of ten fields, of 14 numbers, which the first devices had. */
Answer cujit_cuDeviceGetProperties(i32 *properties, i32 device) {
  Answer answer = checked(properties, device);
  if (!answer) memcpy(properties, state.device.attributes, 14 * sizeof *properties);
  return answer;
}
