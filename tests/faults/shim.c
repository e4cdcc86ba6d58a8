/* A layer between a process and the file system, loaded with LD_PRELOAD.
 *
 * It logs every call that changes files below a folder, so that tests/faults/disk.py can tell what a power cut
 * would have left of them; kills the process at a chosen call; and makes chosen calls fail. It does nothing
 * until a program calls shim_arm. Calls are serialized, so the log has their true order. Syncing only
 * writes to the log: the power cut is simulated, and waiting for the disk would only take time.
 *
 * Calls that read files are not logged. They fail below a second folder, which also holds the inputs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHORT -1 /* instead of an error number: read or write only half of the bytes */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], inputs[PATH_MAX], grave[PATH_MAX], calls[256];
static int armed, log_fd, fault;
static long n_calls, cut_at, n_matching, first_fault, n_faults;

/* Log below `folder`, and let calls that read fail below `above`. Kill the process at call number `cut`, if that is not 0. Of the calls whose names are in
 * `names`, separated by spaces, let `n` fail with `error`, beginning with number `first`. */
void shim_arm(const char *folder, const char *above, const char *log, const char *graveyard, long cut,
              const char *names, int error, long first, long n)
{
    snprintf(inputs, sizeof inputs, "%s/", above);
    snprintf(root, sizeof root, "%s/", folder);
    snprintf(grave, sizeof grave, "%s", graveyard);
    snprintf(calls, sizeof calls, " %s ", names);
    log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    n_calls = n_matching = 0;
    cut_at = cut, fault = error, first_fault = first, n_faults = n;
    armed = 1;
}

/* The number of calls so far whose names are in `names`. */
long shim_count(void)
{
    return n_matching;
}

static void record(const char *format, ...)
{
    char line[3 * PATH_MAX];
    va_list values;
    va_start(values, format);
    int n = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    syscall(SYS_write, log_fd, line, n);
}

/* Return the fault of a call, or 0. The caller holds the lock. */
static int next_fault(const char *name)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", name);
    if (!strstr(calls, word))
        return 0;
    n_matching++;
    return n_matching >= first_fault && n_matching < first_fault + n_faults ? fault : 0;
}

/* Begin a call that changes files; return its fault, or 0. The caller holds the lock. */
static int begin(const char *name)
{
    if (++n_calls == cut_at)
        syscall(SYS_kill, getpid(), SIGKILL);
    return next_fault(name);
}

static int is_watched(const char *path)
{
    return armed && strncmp(path, root, strlen(root)) == 0;
}

static int is_input(const char *path)
{
    return armed && strncmp(path, inputs, strlen(inputs)) == 0;
}

static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    return n >= 0;
}

/* Make a path absolute. Links inside it are not resolved: tests use none. */
static const char *absolute(int folder, const char *path, char *buffer)
{
    char base[PATH_MAX];
    if (path[0] == '/')
        return path;
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base))
            return path;
    } else if (!path_of(folder, base))
        return path;
    snprintf(buffer, 2 * PATH_MAX, "%s/%s", base, path);
    return buffer;
}

static int fail(int error)
{
    pthread_mutex_unlock(&lock);
    errno = error;
    return -1;
}

/* The fault of a call that reads a path; 0 for other paths. */
static int fault_of(const char *name, const char *path)
{
    if (!is_input(path))
        return 0;
    pthread_mutex_lock(&lock);
    int error = next_fault(name);
    pthread_mutex_unlock(&lock);
    return error;
}

/* Opening and creating */

static int opened(int folder, const char *given, int flags, mode_t mode)
{
    char buffer[2 * PATH_MAX], kept[PATH_MAX + 32];
    const char *path = armed ? absolute(folder, given, buffer) : given;
    int writes = flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR);
    int error = writes ? 0 : fault_of("open_read", path);
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (!writes || (flags & O_TMPFILE) == O_TMPFILE || !is_watched(path))
        return syscall(SYS_openat, folder, given, flags, mode);
    pthread_mutex_lock(&lock);
    error = begin("open");
    if (error > 0)
        return fail(error);
    struct stat before, after;
    int existed = stat(path, &before) == 0;
    int fd = syscall(SYS_openat, folder, given, flags, mode);
    int result = errno;
    if (fd >= 0 && fstat(fd, &after) == 0 && S_ISREG(after.st_mode)) {
        if (!existed) {
            snprintf(kept, sizeof kept, "%s/%lu", grave, (unsigned long)after.st_ino);
            syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
            record("create\t%lu\t%s\n", (unsigned long)after.st_ino, path);
        } else
            record("open\t%lu\t%s\n", (unsigned long)after.st_ino, path);
        if (existed && flags & O_TRUNC && before.st_size)
            record("truncate\t%lu\n", (unsigned long)after.st_ino);
    }
    pthread_mutex_unlock(&lock);
    errno = result;
    return fd;
}

#define MODE(flags)                                   \
    mode_t mode = 0;                                  \
    if ((flags) & O_CREAT) {                          \
        va_list values;                               \
        va_start(values, flags);                      \
        mode = va_arg(values, int);                   \
        va_end(values);                               \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags)
    return opened(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags)
    return opened(folder, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat64(const char *path, mode_t mode)
{
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* Reading */

static ssize_t got(int fd, void *bytes, size_t n, off_t offset)
{
    char path[PATH_MAX];
    int error = armed && fd > 2 && n && path_of(fd, path) ? fault_of("read", path) : 0;
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error == SHORT)
        n = (n + 1) / 2;
    return offset < 0 ? syscall(SYS_read, fd, bytes, n) : syscall(SYS_pread64, fd, bytes, n, offset);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    return got(fd, bytes, n, -1);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset)
{
    return got(fd, bytes, n, offset);
}

ssize_t pread64(int fd, void *bytes, size_t n, off_t offset)
{
    return got(fd, bytes, n, offset);
}

ssize_t readv(int fd, const struct iovec *parts, int n) /* a short read into the first part that is not empty */
{
    char path[PATH_MAX];
    if (!armed || !path_of(fd, path) || !is_input(path))
        return syscall(SYS_readv, fd, parts, n);
    while (n > 1 && !parts->iov_len)
        parts++, n--;
    return got(fd, parts->iov_base, parts->iov_len, -1);
}

/* A fault of "map" is an error of the call. A fault of "page" comes later: touching a page that cannot be read
 * kills the process. */
static void *mapped(void *at, size_t n, int access, int flags, int fd, off_t offset)
{
    char path[PATH_MAX];
    int is_file = armed && fd > 2 && path_of(fd, path);
    int error = is_file ? fault_of("map", path) : 0;
    if (error > 0) {
        errno = error;
        return MAP_FAILED;
    }
    if (is_file && fault_of("page", path))
        access = PROT_NONE;
    return (void *)syscall(SYS_mmap, at, n, access, flags, fd, offset);
}

void *mmap(void *at, size_t n, int access, int flags, int fd, off_t offset)
{
    return mapped(at, n, access, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int access, int flags, int fd, off_t offset)
{
    return mapped(at, n, access, flags, fd, offset);
}

DIR *opendir(const char *given)
{
    static DIR *(*real)(const char *);
    char buffer[2 * PATH_MAX];
    const char *path = armed ? absolute(AT_FDCWD, given, buffer) : given;
    if (!real)
        real = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    int error = fault_of("list", path);
    if (error > 0) {
        errno = error;
        return NULL;
    }
    return real(given);
}

/* Writing and syncing */

static ssize_t written(int fd, const void *bytes, size_t n, off_t offset)
{
    char path[PATH_MAX];
    if (!armed || fd < 3 || !path_of(fd, path) || !is_watched(path))
        return offset < 0 ? syscall(SYS_write, fd, bytes, n) : syscall(SYS_pwrite64, fd, bytes, n, offset);
    pthread_mutex_lock(&lock);
    int error = begin("write");
    if (error > 0)
        return fail(error);
    if (error == SHORT)
        n = (n + 1) / 2;
    ssize_t done = offset < 0 ? syscall(SYS_write, fd, bytes, n) : syscall(SYS_pwrite64, fd, bytes, n, offset);
    int result = errno;
    struct stat file;
    if (done > 0 && fstat(fd, &file) == 0) {
        off_t start = offset < 0 ? lseek(fd, 0, SEEK_CUR) - done : offset;
        record("write\t%lu\t%ld\t%ld\n", (unsigned long)file.st_ino, (long)start, (long)done);
    }
    pthread_mutex_unlock(&lock);
    errno = result;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return written(fd, bytes, n, -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    return written(fd, bytes, n, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t offset)
{
    return written(fd, bytes, n, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int n) /* a short write of its first part that is not empty */
{
    char path[PATH_MAX];
    if (!armed || fd < 3 || !path_of(fd, path) || !is_watched(path))
        return syscall(SYS_writev, fd, parts, n);
    while (n > 1 && !parts->iov_len)
        parts++, n--;
    return written(fd, parts->iov_base, parts->iov_len, -1);
}

static int synced(int fd, long number)
{
    char path[PATH_MAX];
    struct stat file;
    if (!armed || !path_of(fd, path) || fstat(fd, &file) ||
        !(is_watched(path) || strncmp(path, root, strlen(root) - 1) == 0))
        return syscall(number, fd);
    pthread_mutex_lock(&lock);
    int error = begin("fsync");
    if (error > 0)
        return fail(error);
    if (S_ISDIR(file.st_mode))
        record("sync folder\t%s\n", path);
    else
        record("sync\t%lu\n", (unsigned long)file.st_ino);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd)
{
    return synced(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, SYS_fdatasync);
}

/* Names */

static int renamed(int folder, const char *given, int other, const char *to, unsigned flags)
{
    char buffer[2 * PATH_MAX], second[2 * PATH_MAX];
    const char *path = armed ? absolute(folder, given, buffer) : given;
    const char *target = armed ? absolute(other, to, second) : to;
    if (!is_watched(target))
        return syscall(SYS_renameat2, folder, given, other, to, flags);
    pthread_mutex_lock(&lock);
    int error = begin("rename");
    if (error > 0)
        return fail(error);
    int done = syscall(SYS_renameat2, folder, given, other, to, flags), result = errno;
    if (done == 0)
        record("rename\t%s\t%s\n", path, target);
    pthread_mutex_unlock(&lock);
    errno = result;
    return done;
}

int rename(const char *path, const char *to)
{
    return renamed(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int renameat(int folder, const char *path, int other, const char *to)
{
    return renamed(folder, path, other, to, 0);
}

int renameat2(int folder, const char *path, int other, const char *to, unsigned flags)
{
    return renamed(folder, path, other, to, flags);
}

static int linked(int folder, const char *given, int other, const char *to, int flags)
{
    char buffer[2 * PATH_MAX], second[2 * PATH_MAX];
    const char *path = armed ? absolute(folder, given, buffer) : given;
    const char *target = armed ? absolute(other, to, second) : to;
    if (!is_watched(target))
        return syscall(SYS_linkat, folder, given, other, to, flags);
    pthread_mutex_lock(&lock);
    int error = begin("link");
    if (error > 0)
        return fail(error);
    int done = syscall(SYS_linkat, folder, given, other, to, flags), result = errno;
    if (done == 0)
        record("link\t%s\t%s\n", path, target);
    pthread_mutex_unlock(&lock);
    errno = result;
    return done;
}

int link(const char *path, const char *to)
{
    return linked(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int linkat(int folder, const char *path, int other, const char *to, int flags)
{
    return linked(folder, path, other, to, flags);
}

static int removed(int folder, const char *given, int flags)
{
    char buffer[2 * PATH_MAX];
    const char *path = armed ? absolute(folder, given, buffer) : given;
    if (!is_watched(path))
        return syscall(SYS_unlinkat, folder, given, flags);
    pthread_mutex_lock(&lock);
    int error = begin("unlink");
    if (error > 0)
        return fail(error);
    int done = syscall(SYS_unlinkat, folder, given, flags), result = errno;
    if (done == 0)
        record("remove\t%s\n", path);
    pthread_mutex_unlock(&lock);
    errno = result;
    return done;
}

int unlink(const char *path)
{
    return removed(AT_FDCWD, path, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    return removed(folder, path, flags);
}

int rmdir(const char *path)
{
    return removed(AT_FDCWD, path, AT_REMOVEDIR);
}

static int made(int folder, const char *given, mode_t mode)
{
    char buffer[2 * PATH_MAX];
    const char *path = armed ? absolute(folder, given, buffer) : given;
    if (!is_watched(path))
        return syscall(SYS_mkdirat, folder, given, mode);
    pthread_mutex_lock(&lock);
    int error = begin("mkdir");
    if (error > 0)
        return fail(error);
    int done = syscall(SYS_mkdirat, folder, given, mode), result = errno;
    if (done == 0)
        record("make\t%s\n", path);
    pthread_mutex_unlock(&lock);
    errno = result;
    return done;
}

int mkdir(const char *path, mode_t mode)
{
    return made(AT_FDCWD, path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    return made(folder, path, mode);
}
