/* farjump_code.h - for injected functions that make code: bitcode for farjump_make (farjump_ifunc.h) from text in
 * LLVM's assembly language (https://llvm.org/docs/LangRef.html).
 *
 * The text need not name a machine: the target compiles it for its own. The target has to take bitcode (farjump serve
 * --bitcode). The text defines `void @NAME_main(ptr, i64, ptr)`, and declares the target's symbols that it uses. */
#ifndef FARJUMP_CODE_H
#define FARJUMP_CODE_H

#include "farjump_ifunc.h"

/* Length of the bitcode for a text of len bytes and a name of name_len bytes. */
#define FARJUMP_TEXT_CODE_SIZE(name_len, len) (24 + (size_t)(name_len) + (size_t)(len))

/* Writes the bitcode of the function `name`, of name_len bytes, with a text of len bytes, to code. There must be
 * FARJUMP_TEXT_CODE_SIZE bytes of space. Returns the length of the bitcode, or 0 on an unknown machine. */
static inline size_t farjump_text_code(uint8_t *code, const char *name, size_t name_len, const char *text, size_t len)
{
#if defined(__x86_64__)
    const unsigned machine = 62;
#elif defined(__aarch64__)
    const unsigned machine = 183;
#elif defined(__riscv) && __riscv_xlen == 64
    const unsigned machine = 243;
#else
    const unsigned machine = 0;
#endif
    /* `FJL`, version 1; machine; Linux; any LLVM from 17 on; no wanted libraries, one module. */
    uint8_t head[20] = {'F', 'J', 'L', 1, (uint8_t)machine, 0, 1, 0, 17, 0, 0, 1};
    const size_t lengths[2] = {name_len + 1, len};
    size_t at = sizeof head;

    if (machine == 0)
        return 0;
    for (int i = 0; i < 2; i++)
        for (int byte = 0; byte < 4; byte++)
            head[12 + 4 * i + byte] = (uint8_t)(lengths[i] >> 8 * byte);
    __builtin_memcpy(code, head, sizeof head);
    __builtin_memcpy(code + at, name, name_len);
    for (at += name_len, code[at++] = 0; at % 4 != 0;)
        code[at++] = 0;
    __builtin_memcpy(code + at, text, len);
    return at + len;
}

#endif
