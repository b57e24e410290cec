#include "yoke/train/data/samples.h"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {

at::Tensor map_tensor(const std::filesystem::path& path, const FileLayout& layout) {
  const auto item_bytes = static_cast<int64_t>(c10::elementSize(layout.dtype));
  int64_t num_bytes = item_bytes;
  for (const int64_t size : layout.sizes) {
    if (size < 0 || __builtin_mul_overflow(num_bytes, size, &num_bytes)) {
      throw Error(ErrorCode::kInvalidArgument, "mapping {}: a tensor cannot have the sizes [{}]", path.string(),
                  fmt::join(layout.sizes, ", "));
    }
  }
  if (layout.offset_bytes < 0 || layout.offset_bytes % item_bytes != 0) {
    throw Error(ErrorCode::kInvalidArgument, "mapping {}: offset {} is not a multiple of the {} bytes of one {}",
                path.string(), layout.offset_bytes, item_bytes, c10::toString(layout.dtype));
  }

  auto file = std::make_shared<MappedFile>(path);
  const auto file_bytes = static_cast<int64_t>(file->bytes().size());
  if (file_bytes - layout.offset_bytes < num_bytes) {
    throw Error(ErrorCode::kDataLoss, "{} has {} bytes; [{}] {} from offset {} needs {}", path.string(), file_bytes,
                fmt::join(layout.sizes, ", "), c10::toString(layout.dtype), layout.offset_bytes,
                num_bytes + layout.offset_bytes);
  }
  auto* first = const_cast<std::byte*>(file->bytes().data()) + layout.offset_bytes;
  return at::from_blob(
      first, layout.sizes, [file](void*) {}, at::TensorOptions(layout.dtype));
}

}  // namespace yoke::train
