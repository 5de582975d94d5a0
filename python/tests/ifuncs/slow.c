/* slow - sleeps for the milliseconds of its payload, and replies with the payload. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(slow)

struct timespec_of_linux {
    long seconds;
    long nanoseconds;
};
extern int nanosleep(const struct timespec_of_linux *, struct timespec_of_linux *);

FARJUMP_IFUNC void slow_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    uint16_t milliseconds = payload_size == 2 ? *(uint16_t *)payload : 0;
    struct timespec_of_linux time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, 0);
    farjump_reply(payload, payload_size);
}
