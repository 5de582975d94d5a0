/* hello - greets on the target's standard output. It has an import (printf), a global variable, a static one,
 * a helper function and a table of strings. The payload is the name to greet, text of any length. target_args
 * is not used. The reply is a uint64_t: the number of greetings by this code at that target. */
#include <farjump_ifunc.h>
#include <stdio.h>

FARJUMP_COPY_ARGS(hello)

int hello_answer = 42;
static uint64_t calls;
static const char *const times[] = { "once more", "for the first time", "again", "a third time" };

__attribute__((noinline)) static const char *which_time(uint64_t call)
{
    return times[call < 4 ? call : 0];
}

FARJUMP_IFUNC void hello_main(void *payload, size_t payload_size, void *target_args)
{
    (void)target_args;
    calls++;
    printf("hello %.*s, %s; the answer is %d\n", (int)payload_size, (const char *)payload, which_time(calls),
           hello_answer);
    farjump_reply(&calls, sizeof calls);
}
