/* Preloaded into a process: has calls on the files of the database do what the file named by LEVITY_TEST_FAULT says:
   `CALL FAULT [EVERY]`, where CALL is `write` or `sync`, and FAULT is `eio`, `enospc`, `edquot`, `torn` or `hang`. One call of
   EVERY has the fault, or all. Or `read once`, after which one read gets wrong bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FAULT_LEN 16

/* Which fault a call has; an empty text if it has none. */
static void find_fault(const char *call, char fault[FAULT_LEN])
{
    static atomic_uint count;
    const char *path = getenv("LEVITY_TEST_FAULT");
    char text[64] = "", of[FAULT_LEN];
    unsigned every = 1;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    int fields = len > 0 ? sscanf(text, "%15s %15s %u", of, fault, &every) : 0;
    if (fields < 2 || strcmp(of, call) != 0 || atomic_fetch_add(&count, 1) % every != 0)
        fault[0] = '\0';
}

static int is_of_database(int file)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/messages.db") != NULL;
}

/* Sets `errno` as a fault says; whether there is one. */
static int fails(const char *fault)
{
    if (fault[0] != '\0')
        errno = strcmp(fault, "enospc") == 0 ? ENOSPC : strcmp(fault, "edquot") == 0 ? EDQUOT : EIO;
    return fault[0] != '\0';
}

static ssize_t write_at(const char *name, int file, const void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    char fault[FAULT_LEN];
    if (!is_of_database(file))
        return real(file, bytes, count, offset);
    find_fault("write", fault);
    if (strcmp(fault, "torn") == 0)
        real(file, bytes, count / 2, offset);
    return fails(fault) ? -1 : real(file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    return write_at("pwrite", file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset)
{
    return write_at("pwrite64", file, bytes, count, offset);
}

static ssize_t read_at(const char *name, int file, void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    ssize_t len = real(file, bytes, count, offset);
    char fault[FAULT_LEN] = "";
    if (len > 0 && is_of_database(file))
        find_fault("read", fault);
    if (strcmp(fault, "once") == 0) {
        memset(bytes, 0xaa, len);
        unlink(getenv("LEVITY_TEST_FAULT"));
    }
    return len;
}

ssize_t pread(int file, void *bytes, size_t count, off_t offset)
{
    return read_at("pread", file, bytes, count, offset);
}

ssize_t pread64(int file, void *bytes, size_t count, off_t offset)
{
    return read_at("pread64", file, bytes, count, offset);
}

static int sync_file(const char *name, int file)
{
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    char fault[FAULT_LEN];
    if (!is_of_database(file))
        return real(file);
    do {
        find_fault("sync", fault);
    } while (strcmp(fault, "hang") == 0 && usleep(10000) == 0);
    return fails(fault) ? -1 : real(file);
}

int fsync(int file)
{
    return sync_file("fsync", file);
}

int fdatasync(int file)
{
    return sync_file("fdatasync", file);
}
