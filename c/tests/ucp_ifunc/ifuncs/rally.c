/* Returns the ball: sends the message in its target_args to the peer. */
#include <stdint.h>

#include "game.h"

#ifdef IFUNC_API_THREE_CHAINS
size_t rally_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int rally_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    (void)source_args, (void)source_args_size, (void)payload;
    *payload_size = 0;
    return 0;
}
#else
size_t rally_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int rally_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)payload, (void)payload_size, (void)source_args, (void)source_args_size;
    return 0;
}
#endif

void rally_main(void *payload, size_t payload_size, void *target_args)
{
    struct game *game = target_args;
    ucs_status_t status;
    (void)payload, (void)payload_size;
    game->seen++;
    /* The source begins, so the last ball that comes to the source is not returned. */
    status = ucp_ifunc_send_nbix(game->ep, game->message, game->remote, game->rkey);
    if (status != UCS_OK && status != UCS_INPROGRESS)
        game->failed++;
}
