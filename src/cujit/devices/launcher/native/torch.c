/* torch's tensors, by its own interface (devices.arguments.tensors.TensorInterface). */

#include "launcher.h"

/* Ask torch one thing of a tensor: the low 32 bits of the answer are given, or -2 where it refuses. */
static i32 ask(u64 question, char *tensor, i64 *answer) {
  *answer = -1;
  return ((i32(*)(char *, i64 *))question)(tensor, answer) ? -2 : (i32)*answer;
}

/* A strided tensor on this device, of the dtype that was found right, contiguous, of two elements and more. */
bool cujit_torch(object *value, object *type, struct Round *round, u64 *out) {
  struct LaunchState *state = round->state;
  struct TensorInterface *torch = (void *)state->tensors;
  if (type != (object *)torch->tensor_type && type != (object *)torch->parameter_type) return false;
  char *tensor = (char *)value + torch->handle;
  i64 answer;
  if (ask(torch->get_layout, tensor, &answer) != 0) return false;
  if (ask(torch->get_dtype, tensor, &answer) != ((i32 *)state->known_tensors)[round->index]) return false;
  if (ask(torch->get_device_type, tensor, &answer) != state->tensor_device_type) return false;
  if (ask(torch->get_device_index, tensor, &answer) != state->tensor_device_index) return false;
  ask(torch->get_numel, tensor, &answer);
  if (answer <= 1) return false;
  if ((ask(torch->is_contiguous, tensor, &answer) & 255) != 1) return false;
  if (ask(torch->get_data_ptr, tensor, &answer) == -2) return false;
  *out = (u64)answer;
  return true;
}
