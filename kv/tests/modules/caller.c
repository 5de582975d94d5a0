/* A module of another author. Its commands take another command as arguments. CALLER.PLAIN runs it as modules run commands,
 * without a user. CALLER.AS_USER runs it as the client's user. CALLER.REPLICATE sends it to replicas and the append-only file.
 * Declares the few functions of the server that it needs. Built by cc. */
#include <stddef.h>

typedef struct context {
    int (*get_api)(const char *, void *);
} context;
typedef struct string string;
typedef struct reply reply;
typedef int command(context *, string **, int);

#define OK 0
#define ERR 1

static void (*set_attributes)(context *, const char *, int, int);
static int (*create_command)(context *, const char *, command *, const char *, int, int, int);
static const char *(*string_bytes)(const string *, size_t *);
static reply *(*call)(context *, const char *, const char *, ...);
static int (*replicate)(context *, const char *, const char *, ...);
static int (*reply_with)(context *, reply *);
static int (*reply_error)(context *, const char *);
static int (*reply_number)(context *, long long);

static int run(context *ctx, string **argv, int argc, const char *format)
{
    if (argc < 2)
        return reply_error(ctx, "ERR give a command");
    reply *got = call(ctx, string_bytes(argv[1], NULL), format, argv + 2, (size_t)(argc - 2));
    return got ? reply_with(ctx, got) : reply_error(ctx, "ERR the server runs nothing");
}

static int plain(context *ctx, string **argv, int argc)
{
    return run(ctx, argv, argc, "Ev");
}

static int as_user(context *ctx, string **argv, int argc)
{
    return run(ctx, argv, argc, "ECv");
}

static int to_replicas(context *ctx, string **argv, int argc)
{
    if (argc < 2)
        return reply_error(ctx, "ERR give a command");
    replicate(ctx, string_bytes(argv[1], NULL), "v", argv + 2, (size_t)(argc - 2));
    return reply_number(ctx, argc - 2);
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc)
{
    (void)argv, (void)argc;
    ctx->get_api("RedisModule_SetModuleAttribs", &set_attributes);
    ctx->get_api("RedisModule_CreateCommand", &create_command);
    ctx->get_api("RedisModule_StringPtrLen", &string_bytes);
    ctx->get_api("RedisModule_Call", &call);
    ctx->get_api("RedisModule_Replicate", &replicate);
    ctx->get_api("RedisModule_ReplyWithLongLong", &reply_number);
    ctx->get_api("RedisModule_ReplyWithCallReply", &reply_with);
    ctx->get_api("RedisModule_ReplyWithError", &reply_error);
    set_attributes(ctx, "caller", 1, 1);
    if (create_command(ctx, "caller.plain", plain, "", 0, 0, 0) != OK)
        return ERR;
    if (create_command(ctx, "caller.replicate", to_replicas, "write", 0, 0, 0) != OK)
        return ERR;
    return create_command(ctx, "caller.as_user", as_user, "", 0, 0, 0);
}
