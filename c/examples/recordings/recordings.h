/* What the programs and the functions that are injected agree on: recordings, and answers. Source and target are machines of one
 * kind, so that structures travel as they are. */
#ifndef RECORDINGS_H
#define RECORDINGS_H

#include <stdint.h>

/* What is known of a recording besides its samples. */
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

/* How many bytes the samples are. */
static inline uint64_t recording_size(const struct recording_info *info)
{
    return (uint64_t)info->length * info->channels * (info->bits / 8);
}

/* One sample of those at `pcm`, counted over all channels; silence is 0. */
static inline int32_t recording_sample(const struct recording_info *info, const uint8_t *pcm, uint64_t index)
{
    if (info->bits == 8)
        return pcm[index] - 128;
    return (int16_t)(pcm[2 * index] | pcm[2 * index + 1] << 8);
}

/* What `codec` answers. */
struct codec_answer {
    int64_t row;      /* of the recording that was inserted; 0 if none was: then a text follows that says why */
    uint64_t samples; /* that were inserted, of all channels together */
};

/* What `levels` answers: as many of these as there are recordings. */
struct levels_answer {
    int64_t row;
    struct recording_info info; /* a name that is too long for it is cut */
    uint32_t peak;              /* the largest magnitude of a sample */
    uint64_t energy;            /* the sum of the squares of all samples */
};

#endif
