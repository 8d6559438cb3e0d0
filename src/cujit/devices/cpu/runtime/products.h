/* How the operands of a product of small matrices lie (struct Product is in native/structures.py).

   A *strip* is eight rows of a matrix over four steps of k: one vector of 32 lanes, in which lane 4 * g + j has the
   element of row g at step j. Every register of A (and, its columns taken for rows, of B) is one strip or a few
   neighbouring ones, whatever the shape of the instruction. *Columns* are a strip of B with its rows and steps
   exchanged: eight numbers for each step of k, those of columns 0, 2, 4, 6 and then those of 1, 3, 5, 7, as a lane of a
   quad computes two neighbours. Source: PTX ISA 9.1, "Matrix Fragments for mma…", where `groupID` is g and
   `threadID_in_group` the lane in the quad.

   Strips are numbers to compute with: f32 for every type of at most 32 bits (integers too: their products and sums over
   one instruction stay below 2 ** 24 and are exact), f64 for f64, and words for single bits. */

#pragma once

#include "launch.h"
#include "vectors.h"

/* Lane 4 * g + t gets element 4 * g + `of`, and element t of four. */
#define ROW(of, k) (k) + (of), (k) + (of), (k) + (of), (k) + (of)
#define ROWS(of) ROW(of, 0), ROW(of, 4), ROW(of, 8), ROW(of, 12), ROW(of, 16), ROW(of, 20), ROW(of, 24), ROW(of, 28)
#define SPREAD(type, x, of) ((type)__builtin_shufflevector(x, x, ROWS(of)))
#define FOUR 0, 1, 2, 3
#define REPEAT(type, x) ((type)__builtin_shufflevector(x, x, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR))

/* What is done with both halves of every four columns. */
#define ALL(DO) DO(0, 0), DO(0, 1), DO(1, 0), DO(1, 1), DO(2, 0), DO(2, 1), DO(3, 0), DO(3, 1)

