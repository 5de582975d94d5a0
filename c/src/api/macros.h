/* The version of this header; farjump_version() has the library's. */
#define FARJUMP_VERSION @VERSION@

/* A time without end. */
#define FARJUMP_FOREVER UINT64_MAX
