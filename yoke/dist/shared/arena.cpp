#include "yoke/dist/shared/arena.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/shared/layout.h"

namespace yoke::dist::shared {
namespace {

/// So that the kernel may use huge pages.
constexpr int64_t kBlockUnit = 2 << 20;

std::byte* map_file(const UniqueFd& file, int64_t offset, int64_t bytes) {
  auto* const memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), offset);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

Arena::Arena(const UniqueFd& file, const Options& options)
    : file_(fcntl(file.value(), F_DUPFD_CLOEXEC, 0)), end_(options.begin + options.bytes), next_(options.begin) {
  if (!file_) throw system_error(errno, "keeping the file of the memory that ranks share");
}

Arena::~Arena() {
  for (const auto& [offset, mapped] : of_others_) munmap(mapped.first, static_cast<size_t>(mapped.second));
}

std::shared_ptr<std::byte> Arena::allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Place place{.offset = next_, .bytes = round_up(bytes, kBlockUnit)};
  if (bytes <= 0 || place.bytes > end_ - next_) return nullptr;
  auto* const memory = map_file(file_, place.offset, place.bytes);
  if (memory == nullptr) return nullptr;
  next_ += place.bytes;
  own_[memory] = place;
  return {memory, [self = shared_from_this(), place](std::byte* released) { self->release(released, place); }};
}

void Arena::release(std::byte* memory, Place place) {
  const std::lock_guard lock(mutex_);
  own_.erase(memory);
  munmap(memory, static_cast<size_t>(place.bytes));
  fallocate(file_.value(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place.offset, place.bytes);
}

Place Arena::find(const std::byte* memory, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto after = own_.upper_bound(memory);
  if (after == own_.begin()) return {};
  const auto& [begin, block] = *--after;
  auto place = block;
  place.inside = memory - begin;
  return place.inside + bytes <= place.bytes ? place : Place();
}

std::byte* Arena::map(const Place& place) {
  const std::lock_guard lock(mutex_);
  auto& [memory, bytes] = of_others_[place.offset];
  if (memory == nullptr) {
    memory = map_file(file_, place.offset, place.bytes);
    if (memory == nullptr) {
      of_others_.erase(place.offset);
      throw system_error(errno, "mapping a tensor of another rank");
    }
    bytes = place.bytes;
  }
  return memory + place.inside;
}

}  // namespace yoke::dist::shared
