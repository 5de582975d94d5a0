// An owner of objects and their reader in one C++ program, each object of farjump's ending with its scope.
//
//     objects_cpp ADDRESS
#include <farjump.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
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
using Options = Owned<farjump_target_options_t, farjump_target_options_free>;
using Thread = Owned<farjump_target_thread_t, stop>;

template <typename Owner, typename Make> Owner made(Make make)
{
    typename Owner::pointer object = nullptr;
    check(make(&object));
    return Owner(object);
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 2)
        throw std::runtime_error("one argument");
    auto store = made<Store>([](auto store) { return farjump_store_open(nullptr, store); });
    auto options = made<Options>(farjump_target_options_new);
    check(farjump_target_options_set_objects(options.get(), store.get()));
    farjump_target_t *target = nullptr;
    check(farjump_target_listen(argv[1], options.get(), &target));
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
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
