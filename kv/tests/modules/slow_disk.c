/* A slow disk for servers with this library in LD_PRELOAD: writes to the append-only file take 100 ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t write(int fd, const void *bytes, size_t len)
{
    static ssize_t (*next)(int, const void *, size_t);
    char name[64], path[512] = "";
    if (!next)
        next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (len > 3 && *(const char *)bytes == '*' && readlink(name, path, sizeof path - 1) > 0 && strstr(path, ".incr.aof"))
        usleep(100000);
    return next(fd, bytes, len);
}
