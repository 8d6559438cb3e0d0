/* Changing from one stack to another: the few instructions that no compiler writes.

   cujit_switch(save, stack) puts the registers that a call preserves on the current stack, leaves its pointer at
   `save`, and goes on where `stack` was left. cujit_begin is where a new stack begins: it calls
   function(argument, number) from three preserved registers, and that function must not return. Frame is what a new
   stack holds, from the lowest address.

   A jump and not a return is at the end: processors predict where a return goes by the calls before it, which were made
   on another stack. */

#pragma once

#include "words.h"

void cujit_switch(u8 **save, u8 *stack);
void cujit_begin(void);

#ifdef __aarch64__

/* x19 to x30, and d8 to d15: of the vectors a call preserves the low halves. Source: Procedure Call Standard for the Arm
   64-bit Architecture, 6.1. */
struct Frame {
  void *function, *argument;
  u64 number, free[7], previous_frame;
  void (*begin)(void);
  u64 vectors[8];
};

__asm__(".globl cujit_switch\n"
        "cujit_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\n"
        "stp x21, x22, [sp, #16]\n"
        "stp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n"
        "stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n"
        "stp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n"
        "str x9, [x0]\n"
        "mov sp, x1\n"
        "ldp x19, x20, [sp]\n"
        "ldp x21, x22, [sp, #16]\n"
        "ldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n"
        "ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n"
        "ldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "br x30\n"
        ".globl cujit_begin\n"
        "cujit_begin:\n"
        "mov x0, x20\n"
        "mov w1, w21\n"
        "blr x19\n"
        "brk #1\n");

#else

/* It lies 8 above a multiple of 16, so that the stack is aligned where cujit_begin calls. Preserved registers. Source:
   System V ABI, AMD64 supplement, 3.2.1. */
struct Frame {
  u64 free[2], number;
  void *argument, *function;
  u64 free_too;
  void (*begin)(void);
  u64 last[2];
};

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

#endif
