#include "yoke/train/image/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/image/detail/scan_classes.h"

namespace yoke::train {
namespace {

// Reads the file into `buffer`, which grows and is not cleared.
std::span<const std::byte> read_into(const std::string& path, std::vector<std::byte>& buffer) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.value(), &status) != 0) throw system_error(errno, path);
  const auto size = static_cast<size_t>(status.st_size);
  if (buffer.size() < size) buffer.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(file.value(), buffer.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, path);
    if (count == 0) break;  // truncated meanwhile, which decoding notices
    done += static_cast<size_t>(count);
  }
  return std::span(buffer).first(done);
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
