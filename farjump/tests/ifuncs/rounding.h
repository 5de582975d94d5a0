/* Changes the rounding mode, as interval arithmetic does. */
#ifndef ROUNDING_H
#define ROUNDING_H
#include <stdint.h>

/* Makes this thread round upward: doubles, and on x86-64 also the values of x87. */
static inline void round_up(void)
{
#if defined(__x86_64__)
    uint32_t word;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    word = (word & ~0x6000u) | 0x4000u;
    __asm__ volatile("ldmxcsr %0" : : "m"(word));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    x87 = (uint16_t)((x87 & ~0xc00u) | 0x800u);
    __asm__ volatile("fldcw %0" : : "m"(x87));
#elif defined(__aarch64__)
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    word = (word & ~(uint64_t)0xc00000) | 0x400000;
    __asm__ volatile("msr fpcr, %0" : : "r"(word));
#elif defined(__riscv)
    __asm__ volatile("fsrm %0" : : "r"((uint64_t)3));
#endif
}

#endif
