/* sum - adds up an array of 32-bit numbers, and replies a 64-bit sum.
 *
 *     farjump build sum.cpp --bitcode -o libsum.so */
#include <farjump_ifunc.h>
#include <numeric>

namespace {

template <class Number>
class Numbers {
public:
    Numbers(const void *start, size_t bytes)
        : first(static_cast<const Number *>(start)), count(bytes / sizeof(Number)) {}

    const Number *begin() const { return first; }
    const Number *end() const { return first + count; }

private:
    const Number *first;
    size_t count;
};

} // namespace

FARJUMP_COPY_ARGS(sum)

FARJUMP_IFUNC void sum_main(void *payload, size_t payload_size, void *)
{
    const Numbers<uint32_t> numbers(payload, payload_size);
    const auto total = std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});

    farjump_reply(&total, sizeof total);
}
