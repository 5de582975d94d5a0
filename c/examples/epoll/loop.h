/* Parts of both programs' event loops: adding a descriptor, and ending the program after an error of
 * farjump's. */
#ifndef LOOP_H
#define LOOP_H

#include <farjump.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

static inline void check(int status)
{
    if (status != FARJUMP_OK) {
        fprintf(stderr, "farjump: %s\n", farjump_last_error());
        exit(1);
    }
}

/* Wakes the loop when `fd` is readable. */
static inline void watch(int loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) {
        perror("epoll_ctl");
        exit(1);
    }
}

#endif
