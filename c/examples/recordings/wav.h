/* Reads PCM from WAV files. */
#ifndef WAV_H
#define WAV_H

#include <stddef.h>

#include "recordings.h"

/* Reads the WAV file at `path`: PCM of 8 or 16 bits, mono or stereo. The recording has the file's name,
 * without folder and `.wav`. The caller frees its samples by free(). Returns 0, or -1 and a sentence in
 * `error`. */
int wav_read(const char *path, struct recording *recording, char *error, size_t error_size);

#endif
