/* Types that the programs and the injected functions share: recordings and replies. Structures travel
 * unchanged, because source and target are machines of one kind. */
#ifndef RECORDINGS_H
#define RECORDINGS_H

#include <stdint.h>

/* A recording's properties besides its samples. */
struct recording_info {
    char name[64];     /* zero-terminated */
    uint32_t rate;     /* samples of each channel in a second */
    uint32_t length;   /* samples of each channel in all */
    uint16_t channels; /* 1, or 2: left and right in turn */
    uint16_t bits;     /* of a sample: 8, from 0 to 255 with silence at 128, or 16, signed and little-endian */
};

/* A recording in memory. */
struct recording {
    struct recording_info info;
    uint8_t *pcm; /* the samples, recording_size() bytes */
};

/* Length of the samples in bytes. */
static inline uint64_t recording_size(const struct recording_info *info)
{
    return (uint64_t)info->length * info->channels * (info->bits / 8);
}

/* Returns the sample of this index, counted over all channels. Silence is 0. */
static inline int32_t recording_sample(const struct recording_info *info, const uint8_t *pcm, uint64_t index)
{
    if (info->bits == 8)
        return pcm[index] - 128;
    return (int16_t)(pcm[2 * index] | pcm[2 * index + 1] << 8);
}

/* The reply of `codec`. */
struct codec_answer {
    int64_t row;      /* of the inserted recording; 0 if none was inserted, and a text with the reason follows */
    uint64_t samples; /* inserted, of all channels together */
};

/* The reply of `levels`: one of these for each recording. */
struct levels_answer {
    int64_t row;
    struct recording_info info; /* a longer name is cut */
    uint32_t peak;              /* the largest magnitude of a sample */
    uint64_t energy;            /* the sum of the squares of all samples */
};

#endif
