#include "yoke/train/format/tensor_mapping.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {

struct TensorMapping::Pages {
  std::byte* begin = nullptr;
  size_t size = 0;

  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    if (begin != nullptr) munmap(begin, size);
  }
};

TensorMapping::TensorMapping(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error(errno, "opening " + path.string());
  struct stat status {};
  if (fstat(fd.value(), &status) != 0) throw system_error(errno, "reading " + path.string());
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kDataLoss, "{}: not a regular file", path.string());
  const auto pages = std::make_shared<Pages>();
  pages_ = pages;
  if (status.st_size == 0) return;
  const auto size = static_cast<size_t>(status.st_size);
  // MAP_NORESERVE allows mapping a file larger than the memory, as long as its pages are not written to.
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd.value(), 0);
  if (address == MAP_FAILED) throw system_error(errno, "mapping " + path.string());
  pages->begin = static_cast<std::byte*>(address);
  pages->size = size;
}

std::span<const std::byte> TensorMapping::bytes() const { return {pages_->begin, pages_->size}; }

c10::Storage TensorMapping::storage(int64_t begin_byte, int64_t num_bytes, int64_t alignment_bytes) const {
  std::byte* begin = pages_->begin + begin_byte;
  const auto size = static_cast<size_t>(num_bytes);
  if (reinterpret_cast<uintptr_t>(begin) % static_cast<uintptr_t>(alignment_bytes) != 0 || size == 0) {
    const auto copy = at::empty({num_bytes}, at::kByte);
    if (size > 0) std::memcpy(copy.data_ptr(), begin, size);
    return copy.storage();
  }
  // The deleter keeps the mapping alive.
  auto data = c10::InefficientStdFunctionContext::makeDataPtr(
      begin, [pages = pages_](void*) {}, at::kCPU);
  return c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, /*resizable=*/false);
}

at::Tensor view_of(const c10::Storage& storage, at::ScalarType dtype, int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides) {
  return at::empty({0}, at::TensorOptions(dtype)).set_(storage, offset, sizes, strides);
}

bool are_bools(std::span<const std::byte> bytes) {
  return std::ranges::none_of(bytes, [](std::byte byte) { return byte > std::byte{1}; });
}

}  // namespace yoke::train
