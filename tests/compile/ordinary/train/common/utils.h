#ifndef UTILS_H
#define UTILS_H
#include <stdio.h>
#include <sys/stat.h>
#include <dirent.h>
#include <zlib.h>

inline FILE *fopen_check(const char *path, const char *mode, const char *file, int line) {
    FILE *fp = fopen(path, mode);
    if (fp == NULL) {
        fprintf(stderr, "Error: Failed to open file '%s' at %s:%d\n", path, file, line);
        exit(EXIT_FAILURE);
    }
    return fp;
}
#define fopenCheck(path, mode) fopen_check(path, mode, __FILE__, __LINE__)

extern inline void *malloc_check(size_t size, const char *file, int line) {
    void *ptr = malloc(size);
    if (ptr == NULL) { exit(EXIT_FAILURE); }
    return ptr;
}

inline void create_dir(const char *dir) {
    struct stat st = {0};
    if (stat(dir, &st) == -1) { mkdir(dir, 0700); }
}
struct Timer {
    timespec begin;
    Timer() { clock_gettime(CLOCK_MONOTONIC, &begin); }
    ~Timer() {}
};
#endif
