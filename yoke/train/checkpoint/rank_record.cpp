#include "yoke/train/checkpoint/detail/rank_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train::detail {

struct RankRecord::Header {
  int64_t step_plus_one = 0;  ///< 0: empty, as in a new file. Written last.
  int64_t num_bytes = 0;
};

RankRecord::RankRecord(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(Header))) map(status.st_size);
}

RankRecord::~RankRecord() {
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(size_));
}

void RankRecord::map(int64_t size) {
  const UniqueFd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // The space is taken at once: on a full file system, the first access to the memory would be a SIGBUS.
  const int error = !file ? errno : posix_fallocate(file.value(), 0, size);
  if (error != 0) throw system_error(error, fmt::format("keeping the state of this rank in {}", path_));
  void* const memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
  if (memory == MAP_FAILED) throw system_error(errno, fmt::format("mapping {}", path_));
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(size_));
  memory_ = memory;
  size_ = size;
}

void RankRecord::write(int64_t step, std::span<const std::string_view> pieces) {
  size_t num_bytes = 0;
  for (const auto piece : pieces) num_bytes += piece.size();
  const auto needed = static_cast<int64_t>(sizeof(Header) + num_bytes);
  if (needed > size_) map(needed + needed / 4);
  clear();
  header()->num_bytes = static_cast<int64_t>(num_bytes);
  auto* place = reinterpret_cast<char*>(header() + 1);
  for (const auto piece : pieces) {
    if (!piece.empty()) std::memcpy(place, piece.data(), piece.size());
    place += piece.size();
  }
  // The process may be killed between any two of its stores, and the next one reads what it had stored.
  std::atomic_ref(header()->step_plus_one).store(step + 1, std::memory_order_release);
}

void RankRecord::clear() {
  if (memory_ == nullptr) return;
  std::atomic_ref(header()->step_plus_one).store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<int64_t> RankRecord::step() const {
  if (memory_ == nullptr) return std::nullopt;
  const auto plus_one = std::atomic_ref(header()->step_plus_one).load(std::memory_order_acquire);
  const bool fits = header()->num_bytes >= 0 && header()->num_bytes <= size_ - static_cast<int64_t>(sizeof(Header));
  return plus_one > 0 && fits ? std::optional(plus_one - 1) : std::nullopt;
}

std::string_view RankRecord::bytes() const {
  return {reinterpret_cast<const char*>(header() + 1), static_cast<size_t>(header()->num_bytes)};
}

}  // namespace yoke::train::detail
