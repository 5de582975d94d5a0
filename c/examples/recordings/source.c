/* source - inserts WAV files into the target's database by an injected codec, and lists the database's
 * contents.
 *
 *     source [--transport NAME] [--key-file FILE] ADDRESS [FILE.wav...]
 *
 * The functions are libcodec.so and liblevels.so of the current directory. */
#include <farjump.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recordings.h"
#include "wav.h"

/* Limit for each call, in nanoseconds. */
#define PATIENCE (60 * UINT64_C(1000000000))

/* Options of links, by their own names. */
static const struct option words[] = {
    { "transport", required_argument, NULL, 'o' },
    { "key-file", required_argument, NULL, 'o' },
    { NULL, 0, NULL, 0 },
};

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "source: %s%s%s\n", what, *what != 0 ? ": " : "", why);
    return 1;
}

/* Connects with the options of the command line. Returns 0, or another number after printing the error. */
static int connect_to_target(int argc, char **argv, farjump_link_t **link)
{
    farjump_link_config_t *config = NULL;
    farjump_status_t status = farjump_link_config_new(&config);
    int word = -1, which;

    if (status == FARJUMP_OK)
        status = farjump_link_config_set(config, "connect-timeout", "60s");
    while (status == FARJUMP_OK && (word = getopt_long(argc, argv, "", words, &which)) != -1 && word != '?')
        status = farjump_link_config_set(config, words[which].name, optarg);
    if (status == FARJUMP_OK && word == -1 && optind < argc)
        status = farjump_link_connect(argv[optind], config, link);
    farjump_link_config_free(&config);
    if (status != FARJUMP_OK)
        return failed("", farjump_last_error());
    if (*link == NULL)
        return failed("use", "source [--transport NAME] [--key-file FILE] ADDRESS [FILE.wav...]");
    return 0;
}

/* Inserts a file at the target. */
static int put(farjump_link_t *link, const farjump_library_t *codec, const char *path, farjump_bytes_t *reply)
{
    struct recording recording;
    struct codec_answer answer = { 0, 0 };
    farjump_link_stats_t before, after;
    farjump_status_t status;
    char error[512];

    if (wav_read(path, &recording, error, sizeof error) != 0)
        return failed("", error);
    farjump_link_stats(link, &before, sizeof before);
    status = farjump_link_call(link, codec, &recording, sizeof recording, PATIENCE, reply);
    farjump_link_stats(link, &after, sizeof after);
    free(recording.pcm);
    if (status != FARJUMP_OK)
        return failed(path, farjump_last_error());
    if (farjump_bytes_size(reply) >= sizeof answer)
        memcpy(&answer, farjump_bytes_data(reply), sizeof answer);
    if (answer.row == 0 && farjump_bytes_size(reply) > sizeof answer)
        return failed(path, farjump_bytes_text(reply) + sizeof answer);
    if (answer.row == 0)
        return failed(path, "the target's answer makes no sense");
    printf("%s: %" PRIu64 " samples are row %" PRId64 "; their %" PRIu64 " bytes went as %" PRIu64 "\n",
           recording.info.name, answer.samples, answer.row, recording_size(&recording.info),
           after.payload_bytes - before.payload_bytes);
    return 0;
}

/* Returns the power of a signal in decibels, relative to the largest possible. */
static double decibels(double power, unsigned bits)
{
    double largest = ldexp(1, (int)bits - 1);
    return 10 * log10(power / (largest * largest));
}

/* Prints the target's recordings. */
static int list(farjump_link_t *link, const farjump_library_t *levels, farjump_bytes_t *reply)
{
    struct levels_answer answer;

    if (farjump_link_call(link, levels, NULL, 0, PATIENCE, reply) != FARJUMP_OK)
        return failed("", farjump_last_error());
    printf("%4s  %-20s %6s %8s %4s %8s %9s %9s\n", "row", "name", "rate", "channels", "bits", "seconds", "peak", "mean");
    for (size_t at = 0; at + sizeof answer <= farjump_bytes_size(reply); at += sizeof answer) {
        const struct recording_info *info = &answer.info;
        memcpy(&answer, (const char *)farjump_bytes_data(reply) + at, sizeof answer);
        printf("%4" PRId64 "  %-20s %6" PRIu32 " %8u %4u %8.3f %6.1f dB %6.1f dB\n", answer.row, info->name, info->rate,
               info->channels, info->bits, (double)info->length / info->rate,
               decibels((double)answer.peak * answer.peak, info->bits),
               decibels((double)answer.energy / info->length / info->channels, info->bits));
    }
    return 0;
}

int main(int argc, char **argv)
{
    farjump_library_t *codec = NULL, *levels = NULL;
    farjump_bytes_t *reply = NULL;
    farjump_link_t *link = NULL;
    farjump_link_stats_t stats;
    int ended = 1;

    /* The codec's payload routine runs here, so its library is loaded. The other library's file is only
     * read. */
    if (farjump_library_load("libcodec.so", &codec) != FARJUMP_OK
        || farjump_library_open("liblevels.so", &levels) != FARJUMP_OK || farjump_bytes_new(&reply) != FARJUMP_OK) {
        failed("", farjump_last_error());
    } else if (connect_to_target(argc, argv, &link) == 0) {
        ended = 0;
        for (int i = optind + 1; i < argc && ended == 0; i++)
            ended = put(link, codec, argv[i], reply);
        if (ended == 0)
            ended = list(link, levels, reply);
        if (ended == 0 && farjump_link_stats(link, &stats, sizeof stats) == FARJUMP_OK)
            printf("%" PRIu64 " bytes of code were brought for this\n", stats.code_bytes);
    }
    farjump_link_close(&link);
    farjump_bytes_free(&reply);
    farjump_library_close(&levels);
    farjump_library_close(&codec);
    return ended;
}
