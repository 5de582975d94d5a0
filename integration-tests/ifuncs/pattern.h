/* The bytes that streams of frames carry, as src/conformance/pattern.rs has them: word `index` of frame
 * `number` of stream `seed`. Neighbours, frames and streams have nothing in common, so misplaced bytes
 * are detected. */
#include <stdint.h>

static inline uint64_t pattern_word(uint64_t seed, uint64_t number, uint64_t index)
{
    uint64_t word = seed + number * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}
