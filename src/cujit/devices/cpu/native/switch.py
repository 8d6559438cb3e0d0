"""Changing from one stack to another: the few instructions that no compiler writes.

``cujit_switch(save, stack)`` puts the registers that a call preserves on the current stack, leaves its pointer at
``save``, and goes on where ``stack`` was left. ``cujit_begin`` is where a new stack begins: it calls
``function(argument, number)`` from three preserved registers, and that function must not return.

A new stack holds eight words, from the lowest address: two that are free, ``number``, ``argument``, ``function``, one
that is free, the address of ``cujit_begin``, and one that is free. The lowest address is 8 above a multiple of 16, so
that the stack is aligned where ``cujit_begin`` calls.
"""

from __future__ import annotations

import platform

from cujit.errors import UnsupportedError

__all__ = ["switch_text"]

# A jump and not a return at the end: processors predict where a return goes by the calls before it, which were made on
# another stack. Preserved registers. Source: System V ABI, AMD64 supplement, 3.2.1.
_X86 = """
.globl cujit_switch
cujit_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.globl cujit_begin
cujit_begin:
  movq %r12, %rdi
  movl %r13d, %esi
  callq *%rbx
  ud2
"""


def switch_text() -> str:
    """Write the module-level assembly for this processor.

    Raises:
        UnsupportedError: there is none for it.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise UnsupportedError(
            f"kernels with barriers do not run on {platform.machine()} processors yet",
            help="kernels without synchronisation do; or run it on a GPU",
        )
    lines = [f'module asm "{line.strip()}"' for line in _X86.strip().splitlines()]
    return "\n".join([*lines, "declare void @cujit_switch(ptr, ptr)", "declare void @cujit_begin()"])
