/* The entry points that are called often, or under locks, without Python. Each is cujit_ and its name in the driver. */

#include "contexts.h"
