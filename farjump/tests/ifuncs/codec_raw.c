/* codec_raw - the sample `codec` with its payload as arguments, for blocks made elsewhere. */
#define codec_payload_get_max_size compressed_max_size
#define codec_payload_init_shrink compressed_init
#include "../../../ifuncs/samples/c/codec.c"
#undef codec_payload_get_max_size

FARJUMP_COPY_ARGS(codec)
