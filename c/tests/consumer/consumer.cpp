// A C++ program that is target and source, built against the installation: the target runs on a thread of its own.
//
//     consumer ADDRESS IFUNC-LIBRARY
#include <farjump.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(farjump_status_t status)
{
    if (status != FARJUMP_OK)
        throw std::runtime_error(farjump_last_error());
}

// An object of farjump's, freed at the end of its scope.
template <auto end> struct End {
    template <typename T> void operator()(T *object) const { end(&object); }
};
template <typename T, auto end> using Owned = std::unique_ptr<T, End<end>>;

template <typename T, typename Make> T *made(Make make)
{
    T *object = nullptr;
    check(make(&object));
    return object;
}

farjump_status_t stop(farjump_target_thread_t **thread)
{
    return farjump_target_thread_stop(thread, nullptr);
}

extern "C" uint64_t store_get(const std::vector<uint64_t> *rows, uint64_t key)
{
    return rows->at(key);
}

const uint64_t store_limit = 10;

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 3)
        throw std::runtime_error("two arguments");
    if (farjump_version() != FARJUMP_VERSION)
        throw std::runtime_error("the header is of another version");
    std::vector<uint64_t> rows{0, 10, 20, 30, 40, 50, 60, 70, 80, 90};

    Owned<farjump_target_config_t, farjump_target_config_free> config(
        made<farjump_target_config_t>(farjump_target_config_new));
    check(farjump_target_config_set_args(config.get(), &rows));
    check(farjump_target_config_export_function(config.get(), "store_get",
                                                reinterpret_cast<farjump_function_t>(store_get)));
    check(farjump_target_config_export_data(config.get(), "store_limit", &store_limit));
    auto *target = made<farjump_target_t>(
        [&](farjump_target_t **target) { return farjump_target_listen(argv[1], config.get(), target); });
    Owned<farjump_target_thread_t, stop> thread(
        made<farjump_target_thread_t>([&](farjump_target_thread_t **thread) { return farjump_target_spawn(&target, thread); }));

    Owned<farjump_library_t, farjump_library_close> sum(
        made<farjump_library_t>([&](farjump_library_t **library) { return farjump_library_open(argv[2], library); }));
    Owned<farjump_link_t, farjump_link_close> link(
        made<farjump_link_t>([&](farjump_link_t **link) { return farjump_link_connect(argv[1], nullptr, link); }));
    Owned<farjump_bytes_t, farjump_bytes_free> reply(made<farjump_bytes_t>(farjump_bytes_new));

    const uint64_t keys[] = {3, 4, 5, 999};
    uint64_t total = 0;
    check(farjump_link_call(link.get(), sum.get(), keys, sizeof keys, UINT64_C(60000000000), reply.get()));
    if (farjump_bytes_size(reply.get()) != sizeof total)
        throw std::runtime_error("a reply of another size");
    std::memcpy(&total, farjump_bytes_data(reply.get()), sizeof total);
    std::printf("%llu by farjump %s\n", static_cast<unsigned long long>(total), farjump_version_string());
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
