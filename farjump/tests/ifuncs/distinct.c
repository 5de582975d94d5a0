/* Replies its mark. Tests replace its digits in the library's file: each such file is another function. */
#include <farjump_ifunc.h>

FARJUMP_COPY_ARGS(distinct)

static const char mark[8192] = "<mark 0000000000>";

FARJUMP_IFUNC void distinct_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size, (void)target_args;
    farjump_reply(mark, 17);
}
