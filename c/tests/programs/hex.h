/* Handles as text in the lines between the test and its programs: two hexadecimal digits a byte. */
#ifndef HEX_H
#define HEX_H

#include "check.h"

static inline void print_handle(const farjump_handle_t *handle)
{
    farjump_bytes_t *bytes;
    WORKS(farjump_bytes_new(&bytes));
    WORKS(farjump_handle_to_bytes(handle, bytes));
    const unsigned char *content = farjump_bytes_data(bytes);
    for (size_t at = 0; at < farjump_bytes_size(bytes); at++)
        printf("%02x", content[at]);
    printf("\n");
    fflush(stdout);
    WORKS(farjump_bytes_free(&bytes));
}

static inline size_t read_hex(const char *digits, unsigned char *bytes)
{
    size_t size = strlen(digits) / 2;
    CHECK(size <= FARJUMP_MAX_HANDLE);
    for (size_t at = 0; at < size; at++) {
        unsigned byte;
        CHECK(sscanf(digits + 2 * at, "%2x", &byte) == 1);
        bytes[at] = (unsigned char)byte;
    }
    return size;
}

static inline farjump_handle_t *read_handle(const char *digits)
{
    unsigned char bytes[FARJUMP_MAX_HANDLE];
    farjump_handle_t *handle;
    WORKS(farjump_handle_from_bytes(bytes, read_hex(digits, bytes), &handle));
    return handle;
}

/* Returns the byte at a position of the objects in the tests. */
static inline unsigned char content_at(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

static inline void has_contents(const farjump_view_t *view, size_t size)
{
    const unsigned char *data = farjump_view_data(view);
    CHECK(farjump_view_size(view) == size);
    for (size_t at = 0; at < size; at++)
        CHECK(data[at] == content_at(at));
}

#endif
