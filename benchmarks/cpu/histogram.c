#include <string.h>

void histogram(const unsigned *restrict words, unsigned *restrict count, int n)
{
    unsigned own[4][256]; /* one for each byte of a word, so that equal neighbours do not wait for each other */
    memset(own, 0, sizeof own);
#pragma omp parallel for reduction(+ : own)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 4; k++) own[k][(words[i] >> (8 * k)) & 255]++;
    for (int i = 0; i < 256; i++) count[i] = own[0][i] + own[1][i] + own[2][i] + own[3][i];
}
