#include "yoke/train/image/image_folder.h"

#include <span>

#include "yoke/train/data/detail/read_at.h"
#include "yoke/train/image/detail/scan_classes.h"

namespace yoke::train {
namespace {

// Reads the file into `buffer`, which may grow and keeps old bytes after the file's content.
std::span<const std::byte> read_into(const std::string& path, std::vector<std::byte>& buffer) {
  const auto file = detail::open_file(path);
  const auto size = static_cast<size_t>(file.size_bytes);
  if (buffer.size() < size) buffer.resize(size);
  const auto bytes = std::span(buffer).first(size);
  detail::read_at(file, 0, bytes);
  return bytes;
}

}  // namespace

struct ImageFolder::Impl {
  std::string root;
  ImageDecoder decoder;
  detail::ClassFiles files;
};

ImageFolder::ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options)
    : impl_(std::make_shared<const Impl>(Impl{root.string(), ImageDecoder(options.transform),
                                              detail::scan_classes(root.string(), options.allow_empty_classes)})) {}

int64_t ImageFolder::size() const { return impl_->files.size(); }
const std::vector<std::string>& ImageFolder::classes() const { return impl_->files.classes; }
int64_t ImageFolder::target(int64_t sample) const { return impl_->files.class_of(sample); }
int64_t ImageFolder::num_ignored() const { return impl_->files.num_ignored; }

std::filesystem::path ImageFolder::path(int64_t sample) const {
  return impl_->root + "/" + std::string(impl_->files.path(sample));
}

std::string ImageFolder::name(int64_t sample) const { return std::string(impl_->files.path(sample)); }

Batch ImageFolder::batch(const BatchRequest& request) const {
  static thread_local std::vector<std::byte> buffer;
  const auto data = impl_->decoder.empty(request);
  const auto targets = request.empty({request.size()}, at::kLong);
  auto* const target_values = targets.mutable_data_ptr<int64_t>();
  const int64_t num_rows = request.for_each([&](int64_t row, int64_t sample, SampleRandom& random) {
    const std::string file = path(sample).string();
    impl_->decoder.decode(read_into(file, buffer), file, random, data, row);
    target_values[row] = target(sample);
  });
  return {data.narrow(0, 0, num_rows), targets.narrow(0, 0, num_rows)};
}

}  // namespace yoke::train
