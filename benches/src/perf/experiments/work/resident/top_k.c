/* top_k - finds the 16 largest numbers of the target's column, the largest first. */
#include <farjump_ifunc.h>

#define K 16

FARJUMP_COPY_ARGS(top_k)

FARJUMP_IFUNC void top_k_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const uint64_t *column = (const void *)data->bytes;
    size_t count = data->len / sizeof *column;
    uint64_t top[K];

    (void)payload;
    (void)payload_size;
    for (int j = 0; j < K; j++)
        top[j] = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = column[i];
        int j = K - 1;
        if (number <= top[j])
            continue;
        for (; j > 0 && top[j - 1] < number; j--)
            top[j] = top[j - 1];
        top[j] = number;
    }
    farjump_reply(top, sizeof top);
}
