/* Changing from one stack to another: the few instructions that no compiler writes.

   cujit_switch(save, stack) puts the registers that a call preserves on the current stack, leaves its pointer at
   `save`, and goes on where `stack` was left. cujit_begin is where a new stack begins: it calls
   function(argument, number) from three preserved registers, and that function must not return. */

#pragma once

#include "words.h"

void cujit_switch(u8 **save, u8 *stack);
void cujit_begin(void);

/* What a new stack holds, from the lowest address, which is 8 above a multiple of 16, so that the stack is aligned
   where cujit_begin calls. */
struct Frame {
  u64 free[2], number;
  void *argument, *function;
  u64 free_too;
  void (*begin)(void);
  u64 last;
};

/* A jump and not a return at the end: processors predict where a return goes by the calls before it, which were made
   on another stack. Preserved registers. Source: System V ABI, AMD64 supplement, 3.2.1. */
__asm__(".globl cujit_switch\n"
        "cujit_switch:\n"
        "pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "popq %rcx\n"
        "jmpq *%rcx\n"
        ".globl cujit_begin\n"
        "cujit_begin:\n"
        "movq %r12, %rdi\n"
        "movl %r13d, %esi\n"
        "callq *%rbx\n"
        "ud2\n");
