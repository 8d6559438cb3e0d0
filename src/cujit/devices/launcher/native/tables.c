/* What Python fills in before anything else is called: devices.launcher.library. */

#include "launcher.h"

struct Functions cujit_functions;
struct Objects cujit_objects;
struct Places cujit_places;
u64 cujit_interpreter;
