// An owner of objects and their reader in one C++ program. Each object of farjump's is freed at the end of its scope.
//
//     objects_cpp ADDRESS FOLDER-OF-IFUNC-LIBRARIES
#include <farjump.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// A failure of farjump's, as an exception.
struct Failed : std::runtime_error {
    farjump_status_t status;
    explicit Failed(farjump_status_t status) : std::runtime_error(farjump_last_error()), status(status) {}
};

void check(farjump_status_t status)
{
    if (status != FARJUMP_OK)
        throw Failed(status);
}

template <auto end> struct End {
    template <typename T> void operator()(T *object) const { end(&object); }
};
template <typename T, auto end> using Owned = std::unique_ptr<T, End<end>>;

farjump_status_t stop(farjump_target_thread_t **thread)
{
    return farjump_target_thread_stop(thread, nullptr);
}

using Store = Owned<farjump_store_t, farjump_store_close>;
using Client = Owned<farjump_client_t, farjump_client_close>;
using Handle = Owned<farjump_handle_t, farjump_handle_free>;
using View = Owned<farjump_view_t, farjump_view_release>;
using Config = Owned<farjump_target_config_t, farjump_target_config_free>;
using Library = Owned<farjump_library_t, farjump_library_close>;
using Outcomes = Owned<farjump_outcomes_t, farjump_outcomes_free>;
using Publisher = Owned<farjump_publisher_t, farjump_publisher_close>;
using Subscriber = Owned<farjump_subscriber_t, farjump_subscriber_close>;
using Item = Owned<farjump_item_t, farjump_item_release>;
using Thread = Owned<farjump_target_thread_t, stop>;

template <typename Owner, typename Make> Owner made(Make make)
{
    typename Owner::pointer object = nullptr;
    check(make(&object));
    return Owner(object);
}

// Calls a function at several objects. One of them is gone.
void call(const Client &client, const std::string &folder, const Handle &gone)
{
    auto library =
        made<Library>([&](auto library) { return farjump_library_open((folder + "/libsum_at.so").c_str(), library); });
    std::vector<Handle> put;
    for (std::size_t size = 1; size <= 2; size++)
        put.push_back(made<Handle>(
            [&](auto handle) { return farjump_client_put(client.get(), "u8", "ab", size, FARJUMP_FOREVER, handle); }));
    const farjump_handle_t *handles[] = {put[0].get(), gone.get(), put[1].get()};
    std::uint64_t factor = 1;
    auto outcomes = made<Outcomes>([&](auto outcomes) {
        return farjump_client_map(client.get(), library.get(), handles, 3, &factor, sizeof factor, outcomes);
    });
    int failed = 0;
    for (std::size_t index = 0; index < farjump_outcomes_count(outcomes.get()); index++)
        failed += farjump_outcomes_get(outcomes.get(), index, nullptr, nullptr) != FARJUMP_OK;
    std::printf("%zu outcomes and %d failed\n", farjump_outcomes_count(outcomes.get()), failed);
}

// Publishes and subscribes to a stream in one process.
void stream(const Store &store, const Client &client)
{
    auto publisher =
        made<Publisher>([&](auto made) { return farjump_store_publisher(store.get(), "topic", nullptr, made); });
    auto subscriber =
        made<Subscriber>([&](auto made) { return farjump_client_subscribe(client.get(), "topic", nullptr, made); });
    for (int entry = 0; entry < 3; entry++)
        check(farjump_publisher_publish_bytes(publisher.get(), "int", &entry, sizeof entry, FARJUMP_FOREVER, nullptr));
    check(farjump_publisher_finish(publisher.get(), FARJUMP_FOREVER));
    int had = 0;
    for (;;) {
        farjump_item_t *next = nullptr;
        auto status = farjump_subscriber_next(subscriber.get(), FARJUMP_FOREVER, &next);
        if (status == FARJUMP_STREAM_END)
            break;
        check(status);
        Item item(next);
        had++;
    }
    std::printf("%d entries and the end\n", had);
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 3)
        throw std::runtime_error("two arguments");
    auto store = made<Store>([](auto store) { return farjump_store_open(nullptr, store); });
    auto config = made<Config>(farjump_target_config_new);
    check(farjump_target_config_set_objects(config.get(), store.get()));
    farjump_target_t *target = nullptr;
    check(farjump_target_listen(argv[1], config.get(), &target));
    auto thread = made<Thread>([&](auto thread) { return farjump_target_spawn(&target, thread); });

    std::vector<double> numbers(10000);
    std::iota(numbers.begin(), numbers.end(), 1.0);
    auto put = made<Handle>([&](auto handle) {
        return farjump_store_put(store.get(), "f64", numbers.data(), numbers.size() * sizeof numbers[0], handle);
    });
    auto client =
        made<Client>([&](auto client) { return farjump_client_connect_to_owner(put.get(), nullptr, client); });
    auto get = [&](const Handle &handle) {
        return made<View>([&](auto view) { return farjump_client_get(client.get(), handle.get(), view); });
    };
    auto view = get(put);
    check(farjump_client_evict(client.get(), put.get(), nullptr));
    auto first = static_cast<const double *>(farjump_view_data(view.get()));
    double sum = std::accumulate(first, first + farjump_view_size(view.get()) / sizeof *first, 0.0);
    try {
        get(put);
        throw std::runtime_error("an evicted object is there");
    } catch (const Failed &failed) {
        if (failed.status != FARJUMP_ERROR_GONE)
            throw;
    }
    std::printf("%.0f of %s\n", sum, farjump_handle_type_name(put.get()));
    call(client, argv[2], put);
    stream(store, client);
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
