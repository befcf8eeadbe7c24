/* Preloaded into a process: has calls on the files of the database do what the file named by LEVITY_TEST_FAULT says:
   `CALL FAULT`, where CALL is `write` or `sync` and FAULT is `eio`, `enospc`, `torn` or `hang`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int says(const char *call, const char *fault)
{
    const char *path = getenv("LEVITY_TEST_FAULT");
    char text[64] = "", wanted[64];
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t len = read(file, text, sizeof text - 1);
    close(file);
    snprintf(wanted, sizeof wanted, "%s %s", call, fault);
    return len > 0 && strncmp(text, wanted, strlen(wanted)) == 0;
}

static int is_of_database(int file)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/messages.db") != NULL;
}

static ssize_t write_at(const char *name, int file, const void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    if (!is_of_database(file))
        return real(file, bytes, count, offset);
    if (says("write", "torn"))
        real(file, bytes, count / 2, offset);
    if (says("write", "torn") || says("write", "eio")) {
        errno = EIO;
        return -1;
    }
    if (says("write", "enospc")) {
        errno = ENOSPC;
        return -1;
    }
    return real(file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    return write_at("pwrite", file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset)
{
    return write_at("pwrite64", file, bytes, count, offset);
}

static int sync_file(const char *name, int file)
{
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    if (!is_of_database(file))
        return real(file);
    while (says("sync", "hang"))
        usleep(10000);
    if (says("sync", "eio")) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fsync(int file)
{
    return sync_file("fsync", file);
}

int fdatasync(int file)
{
    return sync_file("fdatasync", file);
}
