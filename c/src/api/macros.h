/* The version of this header; farjump_version() has the library's. */
#define FARJUMP_VERSION @VERSION@

/* A time without end. */
#define FARJUMP_FOREVER UINT64_MAX

/* Most bytes of an encoded handle. */
#define FARJUMP_MAX_HANDLE @MAX_HANDLE@

/* Marks functions that do not return. */
#if defined(__GNUC__)
#define FARJUMP_NORETURN __attribute__((noreturn))
#else
#define FARJUMP_NORETURN
#endif
