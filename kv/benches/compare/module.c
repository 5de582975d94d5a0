/* The module that farjump is compared with: the loop of the sample nearest.c, and a command that does nothing, as commands of
 * the server. Declares the few functions of the server that it needs, so that no header has to be there. Built by cc when
 * the comparison runs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The distance of two vectors, as the sample has it. */
#include "vectors.h"

typedef struct context context;
typedef struct string string;
typedef struct key key;
typedef int command(context *, string **, int);

#define OK 0
#define ERR 1
#define READ 1
#define TYPE_STRING 1
#define MOST_DIMS 4096

static void (*set_attributes)(context *, const char *, int, int);
static int (*create_command)(context *, const char *, command *, const char *, int, int, int);
static key *(*open_key)(context *, string *, int);
static void (*close_key)(key *);
static int (*key_type)(key *);
static const char *(*string_dma)(key *, size_t *, int);
static const char *(*string_bytes)(const string *, size_t *);
static int (*reply_null)(context *);
static int (*reply_bytes)(context *, const char *, size_t);
static int (*reply_error)(context *, const char *);

static int nearest(context *ctx, string **argv, int argc)
{
    static float wanted[MOST_DIMS] __attribute__((aligned(64)));
    size_t query_len, len;

    if (argc != 3)
        return reply_error(ctx, "ERR give a key and a query");
    const char *query = string_bytes(argv[2], &query_len);
    size_t dims = query_len / sizeof(float);
    if (dims == 0 || dims > MOST_DIMS || query_len % sizeof(float) != 0)
        return reply_error(ctx, "ERR the query is no vector of at most 4096 float32 values");
    memcpy(wanted, query, query_len);
    key *vectors = open_key(ctx, argv[1], READ);
    if (vectors == NULL)
        return reply_null(ctx);
    if (key_type(vectors) != TYPE_STRING) {
        close_key(vectors);
        return reply_error(ctx, "ERR the key holds no string");
    }
    const char *vector = string_dma(vectors, &len, READ);
    struct {
        uint64_t index;
        float distance;
    } best = {0, __builtin_inff()};
    for (size_t i = 0; i < len / query_len; i++, vector += query_len) {
        float d = distance((const loose *)vector, wanted, dims);
        if (d < best.distance) {
            best.distance = d;
            best.index = i;
        }
    }
    close_key(vectors);
    char reply[12];
    memcpy(reply, &best.index, 8);
    memcpy(reply + 8, &best.distance, 4);
    return reply_bytes(ctx, reply, sizeof reply);
}

static int empty(context *ctx, string **argv, int argc)
{
    (void)argv;
    (void)argc;
    return reply_null(ctx);
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc)
{
    /* A context begins with the address of the function that finds the others. */
    int (*get)(const char *, void *) = (int (*)(const char *, void *))*(void **)ctx;
    (void)argv;
    (void)argc;

    if (get("RedisModule_SetModuleAttribs", &set_attributes) || get("RedisModule_CreateCommand", &create_command) ||
        get("RedisModule_OpenKey", &open_key) || get("RedisModule_CloseKey", &close_key) ||
        get("RedisModule_KeyType", &key_type) || get("RedisModule_StringDMA", &string_dma) ||
        get("RedisModule_StringPtrLen", &string_bytes) || get("RedisModule_ReplyWithNull", &reply_null) ||
        get("RedisModule_ReplyWithStringBuffer", &reply_bytes) || get("RedisModule_ReplyWithError", &reply_error))
        return ERR;
    set_attributes(ctx, "compare", 1, 1);
    if (create_command(ctx, "compare.nearest", nearest, "readonly", 1, 1, 1) != OK ||
        create_command(ctx, "compare.empty", empty, "readonly fast", 0, 0, 0) != OK)
        return ERR;
    return OK;
}
