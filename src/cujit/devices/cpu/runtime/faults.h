/* How code of ours ends a launch. */

#pragma once

#include "numbers.h"
#include "words.h"

NORETURN void cujit_fault(void *launch, u32 kind, u64 block, u32 thread, u32 line, u64 address);
