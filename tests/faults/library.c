/* A library to preload: the calls that Python makes to the system are counted, and one of them fails.
 *
 * Each wrapper has the signature of the C library, 64-bit offsets. A close that fails has closed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

#define SHOWN __attribute__((visibility("default")))

static volatile int armed, at, number, seen;
static const char *volatile where;

/* Begin to count; the call of this place, from 1, fails with this errno; none fails at 0. */
SHOWN void faults_begin(int place, int error) { seen = 0, at = place, number = error, where = "", armed = 1; }

/* End to count; give how many calls there were. */
SHOWN int faults_end(void) { return armed = 0, seen; }

/* Name the call that failed. */
SHOWN const char *faults_where(void) { return where; }

static int fails(const char *name) {
    if (!armed || __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) != at)
        return 0;
    where = name, errno = number;
    return 1;
}

#define WRAP(type, bad, name, params, args)                                                                            \
    SHOWN type name params {                                                                                           \
        static type(*next) params;                                                                                     \
        if (!next)                                                                                                     \
            next = (type(*) params)dlsym(RTLD_NEXT, #name);                                                            \
        return fails(#name) ? bad : next args;                                                                         \
    }

#define WRAP_OPEN(name)                                                                                                \
    SHOWN int name(const char *path, int flags, ...) {                                                                 \
        static int (*next)(const char *, int, mode_t);                                                                 \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        if (!next)                                                                                                     \
            next = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, #name);                                        \
        return fails(#name) ? -1 : next(path, flags, mode);                                                            \
    }

#define WRAP_CLOSE(name, type)                                                                                         \
    SHOWN int name(type what) {                                                                                        \
        static int (*next)(type);                                                                                      \
        if (!next)                                                                                                     \
            next = (int (*)(type))dlsym(RTLD_NEXT, #name);                                                             \
        int fault = fails(#name), result = next(what);                                                                 \
        return fault ? (errno = number, -1) : result;                                                                  \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_CLOSE(close, int)
WRAP(ssize_t, -1, read, (int fd, void *to, size_t size), (fd, to, size))
WRAP(ssize_t, -1, write, (int fd, const void *from, size_t size), (fd, from, size))
WRAP(ssize_t, -1, pread64, (int fd, void *to, size_t size, off_t place), (fd, to, size, place))
WRAP(ssize_t, -1, preadv64, (int fd, const void *to, int count, off_t place), (fd, to, count, place))
WRAP(off_t, -1, lseek64, (int fd, off_t place, int whence), (fd, place, whence))
WRAP(int, -1, fsync, (int fd), (fd))
WRAP(int, -1, stat64, (const char *path, void *to), (path, to))
WRAP(int, -1, lstat64, (const char *path, void *to), (path, to))
WRAP(int, -1, fstat64, (int fd, void *to), (fd, to))
WRAP(int, -1, fstatat64, (int fd, const char *path, void *to, int flags), (fd, path, to, flags))
WRAP(int, -1, access, (const char *path, int mode), (path, mode))
WRAP(int, -1, faccessat, (int fd, const char *path, int mode, int flags), (fd, path, mode, flags))
WRAP(ssize_t, -1, readlink, (const char *path, char *to, size_t size), (path, to, size))
WRAP(int, -1, rename, (const char *from, const char *to), (from, to))
WRAP(int, -1, link, (const char *from, const char *to), (from, to))
WRAP(int, -1, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRAP(int, -1, unlink, (const char *path), (path))
WRAP(int, -1, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, -1, rmdir, (const char *path), (path))
WRAP(int, -1, chmod, (const char *path, mode_t mode), (path, mode))
WRAP(int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, -1, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
WRAP(int, -1, utimensat, (int fd, const char *path, const void *times, int flags), (fd, path, times, flags))
WRAP(int, -1, ftruncate64, (int fd, off_t size), (fd, size))
WRAP(int, -1, dup, (int fd), (fd))
WRAP(int, -1, pipe2, (int *fds, int flags), (fds, flags))
WRAP(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(void *, NULL, opendir, (const char *path), (path))
WRAP(void *, NULL, fdopendir, (int fd), (fd))
WRAP(void *, NULL, readdir64, (void *directory), (directory))
WRAP(ssize_t, -1, listxattr, (const char *path, char *to, size_t size), (path, to, size))
