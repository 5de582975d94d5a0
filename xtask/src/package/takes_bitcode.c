/* A target that takes bitcode, by an installed library: ends with 1 and the reason if there is no compiler. */
#include <farjump.h>
#include <stdio.h>

int main(void)
{
    farjump_target_config_t *config;
    farjump_target_t *target;
    if (farjump_target_config_new(&config) != FARJUMP_OK
        || farjump_target_config_set(config, "bitcode", "prefer") != FARJUMP_OK
        || farjump_target_listen("unix:takes_bitcode.sock", config, &target) != FARJUMP_OK) {
        fprintf(stderr, "%s\n", farjump_last_error());
        return 1;
    }
    farjump_target_config_free(&config);
    farjump_target_close(&target);
    return 0;
}
