/*
 * Registers the contents of a folder's files from memory, in a process that is its own target. `bitcode works|refuses|mutants
 * FOLDER`, and `bitcode unable FOLDER` where nothing can be compiled.
 */
#include <dirent.h>

#include <farjump.h>

#include "peer.h"

#define SLOT 65536
#ifdef __aarch64__
#define OWN_ARCH "aarch64"
#define OTHER_ARCH "x86_64"
#else
#define OWN_ARCH "x86_64"
#define OTHER_ARCH "aarch64"
#endif
#define OWN OWN_ARCH "-linux-gnu"
#define OTHER OTHER_ARCH "-linux-gnu"
#define UNKNOWN "nvptx64-nvidia-cuda"

static struct peer peer;
static const char *folder;

/* The target_args of a function: the number of calls, and the sum of their numbers. */
static uint64_t counted[2];

/* Returns the contents of a file, to be registered for this triple. */
static ucp_llvm_bc_t file(const char *triple, const char *name)
{
    ucp_llvm_bc_t read;
    char path[4096];
    FILE *opened;
    long end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK((opened = fopen(path, "rb")) != NULL && fseek(opened, 0, SEEK_END) == 0 && (end = ftell(opened)) > 0);
    rewind(opened);
    read.triple = (char *)triple;
    read.size = (uint32_t)end;
    CHECK((read.bc = malloc(read.size)) != NULL && fread(read.bc, 1, read.size, opened) == read.size);
    fclose(opened);
    return read;
}

static ucs_status_t registered(const char *name, ucp_llvm_bc_t *codes, int count, const char *dep, ucp_ifunc_h *ifunc)
{
    ucp_ifunc_reg_param_t param;
    char *deps[1];
    ucs_status_t status;
    deps[0] = (char *)dep;
    memset(&param, 0, sizeof param);
    param.name = (char *)name;
    param.llvm_bc = 1;
    *ifunc = (ucp_ifunc_h)&param;
    status = ucp_register_ifunc_im(peer.context, param, codes, count, deps, dep != NULL, ifunc);
    CHECK((status == UCS_OK) == (*ifunc != NULL));
    return status;
}

/* Checks the status of registering, and that the message contains these words. */
static void refused(ucs_status_t expected, const char *words, const char *name, ucp_llvm_bc_t *codes, int count,
                    const char *dep)
{
    ucp_ifunc_h ifunc;
    ucs_status_t status = registered(name, codes, count, dep, &ifunc);
    if (status != expected || strstr(farjump_last_error(), words) == NULL) {
        fprintf(stderr, "%s: %s, and not %s with `%s`: %s\n", name, ucs_status_string(status), ucs_status_string(expected),
                words, farjump_last_error());
        exit(1);
    }
}

/* Sends a message of this number to this process, and runs it. Returns the length of its frame. */
static size_t run(ucp_ifunc_h ifunc, uint64_t number)
{
    ucp_ifunc_msg_t message;
    ucs_status_t status;
    size_t length;
    OK(ucp_ifunc_msg_create(ifunc, &number, sizeof number, &message));
    length = message.frame_size;
    CHECK(length <= SLOT);
    status = ucp_ifunc_send_nbix(peer.ep, message, peer.remote, peer.rkey);
    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    peer_flush(&peer);
    do {
        status = peer_poll(&peer, peer.region, SLOT, counted);
    } while (status == UCS_ERR_NO_MESSAGE);
    if (status != UCS_OK)
        fprintf(stderr, "%s\n", farjump_last_error());
    OK(status);
    ucp_ifunc_msg_free(message);
    return length;
}

static int entries(const char *of)
{
    DIR *opened = opendir(of);
    int count = 0;
    CHECK(opened != NULL);
    while (readdir(opened) != NULL)
        count++;
    closedir(opened);
    return count;
}

/* Returns the number of this process's children. */
static int children(void)
{
    char path[64], list[4096];
    FILE *opened;
    size_t length;
    int count = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    CHECK((opened = fopen(path, "r")) != NULL);
    length = fread(list, 1, sizeof list, opened);
    fclose(opened);
    for (size_t at = 0; at < length; at++)
        count += list[at] == ' ';
    return count;
}

static void works(void)
{
    ucp_llvm_bc_t codes[3];
    ucp_ifunc_h ifunc, other;
    size_t one, two;
    int before = children();
    uint64_t sum = 0, calls = 0;

    codes[0] = file(OWN, "tally.bc");
    codes[1] = file(OTHER, "other.bc");
    codes[2] = file(UNKNOWN, "tally.bc");
    OK(registered("tally", codes, 1, NULL, &ifunc));
    one = run(ifunc, 5), sum += 5, calls++;
    CHECK(children() == before + 1);
    ucp_deregister_ifunc(peer.context, ifunc);
    CHECK(children() == before);
    /* The images of all known machines travel. */
    OK(registered("tally", codes, 3, NULL, &ifunc));
    refused(UCS_ERR_ALREADY_EXISTS, "deregister it first", "tally", codes, 3, NULL);
    two = run(ifunc, 7), sum += 7, calls++;
    CHECK(two > one + 64);
    /* Two ifuncs share one process, which stays for the other one. */
    codes[0] = file(OWN, "needs.bc");
    OK(registered("needs", codes, 1, "libz.so.1", &other));
    CHECK(children() == before + 1);
    ucp_deregister_ifunc(peer.context, ifunc);
    CHECK(children() == before + 1);
    /* The function and its payload routine both use the dependency. */
    run(other, 9), sum += 9, calls++;
    ucp_deregister_ifunc(peer.context, other);
    CHECK(children() == before);
    CHECK(counted[0] == calls && counted[1] == sum);
    /* A library needs no compiler, nor does an image. */
    codes[0] = file(OWN, "tally.so");
    OK(registered("tally", codes, 1, NULL, &ifunc));
    run(ifunc, 11), sum += 11, calls++;
    ucp_deregister_ifunc(peer.context, ifunc);
    codes[0] = file(OWN, "tally.image");
    codes[1] = file(OTHER, "other.image");
    OK(registered("tally", codes, 2, NULL, &ifunc));
    run(ifunc, 13), sum += 13, calls++;
    ucp_deregister_ifunc(peer.context, ifunc);
    /* Only for another machine. */
    OK(registered("tally", codes + 1, 1, NULL, &ifunc));
    ucp_deregister_ifunc(peer.context, ifunc);
    CHECK(children() == before);
    CHECK(counted[0] == calls && counted[1] == sum);
}

static void refuses(void)
{
    ucp_llvm_bc_t own = file(OWN, "tally.bc"), other = file(OTHER, "other.bc"), codes[2];
    ucp_ifunc_reg_param_t param;
    ucp_ifunc_h ifunc;
    char *none = NULL;

    codes[0] = own, codes[1] = own;
    refused(UCS_ERR_OUT_OF_RANGE, "one machine", "tally", codes, 2, NULL);
    codes[1].triple = (char *)OWN_ARCH "-unknown-linux-gnu";
    refused(UCS_ERR_OUT_OF_RANGE, "`" OWN_ARCH "-unknown-linux-gnu`", "tally", codes, 2, NULL);
    refused(UCS_ERR_NO_ELEM, "none for this machine", "tally", &other, 1, NULL);
    refused(UCS_ERR_NO_ELEM, "none for this machine", "tally", NULL, 0, NULL);
    refused(UCS_ERR_NO_ELEM, "`other_main`", "other", &own, 1, NULL);
    codes[0] = file(OWN, "unfilled.bc");
    refused(UCS_ERR_NO_ELEM, "`tally_payload_init`", "tally", codes, 1, NULL);
    codes[0] = file(OWN, "lacking.bc");
    refused(UCS_ERR_NO_ELEM, "nobody_has_this", "tally", codes, 1, NULL);
    codes[0] = own, codes[0].size /= 2;
    refused(UCS_ERR_REJECTED, OWN, "tally", codes, 1, NULL);
    codes[0] = other, codes[0].triple = (char *)OWN;
    refused(UCS_ERR_REJECTED, OTHER_ARCH, "tally", codes, 1, NULL);
    codes[0] = own, codes[1] = own, codes[1].triple = (char *)OTHER;
    refused(UCS_ERR_REJECTED, OWN_ARCH, "tally", codes, 2, NULL);
    codes[0] = file(OWN, "other.image");
    refused(UCS_ERR_REJECTED, "no image for any CPU of " OWN_ARCH, "tally", codes, 1, NULL);
    codes[0] = file(OWN, "tally.so"), codes[0].size /= 2;
    refused(UCS_ERR_REJECTED, "<memory>", "tally", codes, 1, NULL);
    codes[0].bc = (char *)"neither", codes[0].size = 7;
    refused(UCS_ERR_REJECTED, "begins with `BC`", "tally", codes, 1, NULL);
    refused(UCS_ERR_UNREACHABLE, "without a path", "tally", &own, 1, "/usr/lib/libz.so");
    refused(UCS_ERR_INVALID_PARAM, "is no ifunc's name", "a b", &own, 1, NULL);
    codes[0] = own, codes[0].bc = NULL;
    refused(UCS_ERR_INVALID_PARAM, "`bc` is NULL", "tally", codes, 1, NULL);
    codes[0] = own, codes[0].triple = NULL;
    refused(UCS_ERR_INVALID_PARAM, "`triple` is NULL", "tally", codes, 1, NULL);
    refused(UCS_ERR_INVALID_PARAM, "`bitcodes` is NULL", "tally", NULL, 1, NULL);
    refused(UCS_ERR_INVALID_PARAM, "-1 entries", "tally", &own, -1, NULL);
    memset(&param, 0, sizeof param);
    param.name = (char *)"tally";
    CHECK(ucp_register_ifunc_im(peer.context, param, &own, 1, &none, 1, &ifunc) == UCS_ERR_INVALID_PARAM && ifunc == NULL);
    CHECK(ucp_register_ifunc_im(NULL, param, &own, 1, NULL, 0, &ifunc) == UCS_ERR_INVALID_PARAM);
    CHECK(ucp_register_ifunc_im(peer.context, param, &own, 1, NULL, 0, NULL) == UCS_ERR_INVALID_PARAM);
    CHECK(children() == 0);
}

/* Registers damaged bitcode. Each gives an ifunc or an error, and leaves nothing behind. */
static void mutants(int count)
{
    ucp_llvm_bc_t own = file(OWN, "tally.bc"), mutant = own, needs = file(OWN, "needs.bc");
    uint64_t dice = 53;
    ucp_ifunc_h kept, ifunc;
    int descriptors, mappings, whole = 0, damaged = 0;
    CHECK((mutant.bc = malloc(own.size)) != NULL);
    /* The process stays while this is registered. */
    OK(registered("needs", &needs, 1, "libz.so.1", &kept));
    descriptors = entries("/proc/self/fd"), mappings = entries("/proc/self/map_files");
    for (int number = 0; number < count; number++) {
        ucs_status_t status;
        memcpy(mutant.bc, own.bc, own.size);
        mutant.size = own.size;
        for (int bit = 0; bit < 1 + number % 3; bit++) {
            dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
            ((unsigned char *)mutant.bc)[dice / 8 % own.size] ^= (unsigned char)(1 << dice % 8);
        }
        if (dice % 16 == 0)
            mutant.size = (uint32_t)(dice / 16 % own.size);
        status = registered("tally", &mutant, 1, NULL, &ifunc);
        CHECK(status == UCS_OK || status == UCS_ERR_NO_ELEM || status == UCS_ERR_REJECTED || status == UCS_ERR_NO_RESOURCE);
        whole += status == UCS_OK, damaged += status != UCS_OK;
        ucp_deregister_ifunc(peer.context, ifunc);
    }
    CHECK(whole > 0 && damaged > 0);
    CHECK(entries("/proc/self/fd") == descriptors);
    CHECK(entries("/proc/self/map_files") <= mappings + 16);
    OK(registered("tally", &own, 1, NULL, &ifunc));
    run(ifunc, 3);
    CHECK(counted[0] == 1 && counted[1] == 3);
    ucp_deregister_ifunc(peer.context, ifunc);
    ucp_deregister_ifunc(peer.context, kept);
    CHECK(children() == 0);
    printf("%d ifuncs, %d refusals\n", whole, damaged);
    free(mutant.bc);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    folder = argv[2];
    peer_open_self(&peer, SLOT);
    if (strcmp(argv[1], "works") == 0) {
        works();
    } else if (strcmp(argv[1], "refuses") == 0) {
        refuses();
    } else if (strcmp(argv[1], "mutants") == 0) {
        mutants(atoi(argv[3]));
    } else {
        ucp_llvm_bc_t own = file(OWN, "tally.bc"), image = file(OWN, "tally.image");
        ucp_ifunc_h ifunc;
        refused(UCS_ERR_UNSUPPORTED, "", "tally", &own, 1, NULL);
        puts(farjump_last_error());
        OK(registered("tally", &image, 1, NULL, &ifunc));
        run(ifunc, 3);
        ucp_deregister_ifunc(peer.context, ifunc);
    }
    peer_close(&peer);
    puts("done");
    return 0;
}
