/* A payload's pattern, and the results of the function that compares it. */
#ifndef COMPARED_H
#define COMPARED_H

#include <stdint.h>

#define MOST_WORDS 16384

struct wanted {
    uint64_t number, words;
};

struct compared {
    uint64_t frames, bytes, wrong;
};

/* Differs from frame to frame and from word to word. */
static inline uint64_t pattern(uint64_t number, uint64_t word)
{
    uint64_t value = (number + 1) * 0x9e3779b97f4a7c15u + word * 0xbf58476d1ce4e5b9u;
    return value ^ value >> 29;
}

#endif
