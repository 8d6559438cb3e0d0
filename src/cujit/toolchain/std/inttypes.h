// <inttypes.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#pragma nv_diagnostic push
#pragma nv_diag_suppress 47, 1046, 1444
#include <cuda/std/cstdint>
#pragma nv_diagnostic pop
#ifndef PRId8
#define PRId8 "d"
#endif
#ifndef PRId16
#define PRId16 "d"
#endif
#ifndef PRId32
#define PRId32 "d"
#endif
#ifndef PRId64
#define PRId64 "lld"
#endif
#ifndef PRIdLEAST8
#define PRIdLEAST8 "d"
#endif
#ifndef PRIdLEAST16
#define PRIdLEAST16 "d"
#endif
#ifndef PRIdLEAST32
#define PRIdLEAST32 "d"
#endif
#ifndef PRIdLEAST64
#define PRIdLEAST64 "lld"
#endif
#ifndef PRIdFAST8
#define PRIdFAST8 "d"
#endif
#ifndef PRIdFAST16
#define PRIdFAST16 "d"
#endif
#ifndef PRIdFAST32
#define PRIdFAST32 "d"
#endif
#ifndef PRIdFAST64
#define PRIdFAST64 "lld"
#endif
#ifndef PRIdMAX
#define PRIdMAX "lld"
#endif
#ifndef PRIdPTR
#define PRIdPTR "lld"
#endif
#ifndef PRIi8
#define PRIi8 "i"
#endif
#ifndef PRIi16
#define PRIi16 "i"
#endif
#ifndef PRIi32
#define PRIi32 "i"
#endif
#ifndef PRIi64
#define PRIi64 "lli"
#endif
#ifndef PRIiLEAST8
#define PRIiLEAST8 "i"
#endif
#ifndef PRIiLEAST16
#define PRIiLEAST16 "i"
#endif
#ifndef PRIiLEAST32
#define PRIiLEAST32 "i"
#endif
#ifndef PRIiLEAST64
#define PRIiLEAST64 "lli"
#endif
#ifndef PRIiFAST8
#define PRIiFAST8 "i"
#endif
#ifndef PRIiFAST16
#define PRIiFAST16 "i"
#endif
#ifndef PRIiFAST32
#define PRIiFAST32 "i"
#endif
#ifndef PRIiFAST64
#define PRIiFAST64 "lli"
#endif
#ifndef PRIiMAX
#define PRIiMAX "lli"
#endif
#ifndef PRIiPTR
#define PRIiPTR "lli"
#endif
#ifndef PRIo8
#define PRIo8 "o"
#endif
#ifndef PRIo16
#define PRIo16 "o"
#endif
#ifndef PRIo32
#define PRIo32 "o"
#endif
#ifndef PRIo64
#define PRIo64 "llo"
#endif
#ifndef PRIoLEAST8
#define PRIoLEAST8 "o"
#endif
#ifndef PRIoLEAST16
#define PRIoLEAST16 "o"
#endif
#ifndef PRIoLEAST32
#define PRIoLEAST32 "o"
#endif
#ifndef PRIoLEAST64
#define PRIoLEAST64 "llo"
#endif
#ifndef PRIoFAST8
#define PRIoFAST8 "o"
#endif
#ifndef PRIoFAST16
#define PRIoFAST16 "o"
#endif
#ifndef PRIoFAST32
#define PRIoFAST32 "o"
#endif
#ifndef PRIoFAST64
#define PRIoFAST64 "llo"
#endif
#ifndef PRIoMAX
#define PRIoMAX "llo"
#endif
#ifndef PRIoPTR
#define PRIoPTR "llo"
#endif
#ifndef PRIu8
#define PRIu8 "u"
#endif
#ifndef PRIu16
#define PRIu16 "u"
#endif
#ifndef PRIu32
#define PRIu32 "u"
#endif
#ifndef PRIu64
#define PRIu64 "llu"
#endif
#ifndef PRIuLEAST8
#define PRIuLEAST8 "u"
#endif
#ifndef PRIuLEAST16
#define PRIuLEAST16 "u"
#endif
#ifndef PRIuLEAST32
#define PRIuLEAST32 "u"
#endif
#ifndef PRIuLEAST64
#define PRIuLEAST64 "llu"
#endif
#ifndef PRIuFAST8
#define PRIuFAST8 "u"
#endif
#ifndef PRIuFAST16
#define PRIuFAST16 "u"
#endif
#ifndef PRIuFAST32
#define PRIuFAST32 "u"
#endif
#ifndef PRIuFAST64
#define PRIuFAST64 "llu"
#endif
#ifndef PRIuMAX
#define PRIuMAX "llu"
#endif
#ifndef PRIuPTR
#define PRIuPTR "llu"
#endif
#ifndef PRIx8
#define PRIx8 "x"
#endif
#ifndef PRIx16
#define PRIx16 "x"
#endif
#ifndef PRIx32
#define PRIx32 "x"
#endif
#ifndef PRIx64
#define PRIx64 "llx"
#endif
#ifndef PRIxLEAST8
#define PRIxLEAST8 "x"
#endif
#ifndef PRIxLEAST16
#define PRIxLEAST16 "x"
#endif
#ifndef PRIxLEAST32
#define PRIxLEAST32 "x"
#endif
#ifndef PRIxLEAST64
#define PRIxLEAST64 "llx"
#endif
#ifndef PRIxFAST8
#define PRIxFAST8 "x"
#endif
#ifndef PRIxFAST16
#define PRIxFAST16 "x"
#endif
#ifndef PRIxFAST32
#define PRIxFAST32 "x"
#endif
#ifndef PRIxFAST64
#define PRIxFAST64 "llx"
#endif
#ifndef PRIxMAX
#define PRIxMAX "llx"
#endif
#ifndef PRIxPTR
#define PRIxPTR "llx"
#endif
#ifndef PRIX8
#define PRIX8 "X"
#endif
#ifndef PRIX16
#define PRIX16 "X"
#endif
#ifndef PRIX32
#define PRIX32 "X"
#endif
#ifndef PRIX64
#define PRIX64 "llX"
#endif
#ifndef PRIXLEAST8
#define PRIXLEAST8 "X"
#endif
#ifndef PRIXLEAST16
#define PRIXLEAST16 "X"
#endif
#ifndef PRIXLEAST32
#define PRIXLEAST32 "X"
#endif
#ifndef PRIXLEAST64
#define PRIXLEAST64 "llX"
#endif
#ifndef PRIXFAST8
#define PRIXFAST8 "X"
#endif
#ifndef PRIXFAST16
#define PRIXFAST16 "X"
#endif
#ifndef PRIXFAST32
#define PRIXFAST32 "X"
#endif
#ifndef PRIXFAST64
#define PRIXFAST64 "llX"
#endif
#ifndef PRIXMAX
#define PRIXMAX "llX"
#endif
#ifndef PRIXPTR
#define PRIXPTR "llX"
#endif
