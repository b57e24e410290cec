#include "yoke/train/data/idx.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMaxDimensions = 8;
constexpr int64_t kMaxDeflateRatio = 1032;  // zlib's documentation gives 1030.3 for a long run of one byte

template <typename... Args>
Error damaged(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorCode::kDataLoss, fmt::format("{}: {}", name, fmt::format(format, std::forward<Args>(args)...)));
}

// Reads the content of a file from front to back, and unpacks it if it is gzipped.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {
    gzipped_ = bytes.starts_with(kGzipMagic);
    if (!gzipped_) return;
    if (inflateInit2(&stream_, /*windowBits=*/15 + 16) != Z_OK) {
      throw Error(ErrorCode::kUnavailable, "{}: no memory to unpack it", name);
    }
  }
  Reader(const Reader&) = delete;
  ~Reader() {
    if (gzipped_) inflateEnd(&stream_);
  }

  bool gzipped() const { return gzipped_; }

  // An upper bound of the unpacked length.
  int64_t max_bytes() const {
    const auto size = static_cast<int64_t>(bytes_.size());
    return gzipped_ ? size * kMaxDeflateRatio : size;
  }

  // Reads up to `size` bytes and returns their number.
  int64_t read(uint8_t* to, int64_t size) {
    if (!gzipped_) {
      const auto count = std::min<int64_t>(size, static_cast<int64_t>(bytes_.size()) - position_);
      if (count > 0) std::memcpy(to, bytes_.data() + position_, static_cast<size_t>(count));
      position_ += count;
      return count;
    }
    int64_t done = 0;
    while (done < size && !ended_) {
      constexpr int64_t kPiece = 1 << 30;  // zlib counts in 32 bits
      stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes_.data())) + position_;
      stream_.avail_in = static_cast<uInt>(std::min<int64_t>(kPiece, static_cast<int64_t>(bytes_.size()) - position_));
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(std::min(kPiece, size - done));
      const auto in_before = stream_.avail_in, out_before = stream_.avail_out;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      position_ += in_before - stream_.avail_in;
      done += out_before - stream_.avail_out;
      if (result == Z_STREAM_END) {
        next_member();
      } else if (result == Z_BUF_ERROR || (result == Z_OK && in_before == 0 && out_before == stream_.avail_out)) {
        throw damaged(name_, "the gzip file is cut short: its {} bytes end inside the packed data, after {} unpacked",
                      bytes_.size(), total_ + done);
      } else if (result != Z_OK) {
        throw damaged(name_, "the gzip file is corrupt near byte {} of {}: {}", position_, bytes_.size(),
                      stream_.msg ? stream_.msg : zError(result));
      }
    }
    total_ += done;
    return done;
  }

 private:
  static constexpr std::string_view kGzipMagic = "\x1f\x8b";

  // A gzip file may consist of several members.
  void next_member() {
    const auto rest = bytes_.substr(static_cast<size_t>(position_));
    if (rest.starts_with(kGzipMagic)) {
      inflateReset(&stream_);
    } else if (rest.empty()) {
      ended_ = true;
    } else {
      throw damaged(name_, "{} bytes of something else follow the gzip data, which ends at byte {}", rest.size(),
                    position_);
    }
  }

  std::string_view bytes_;
  std::string_view name_;
  z_stream stream_{};
  int64_t position_ = 0;  // in bytes_
  int64_t total_ = 0;     // unpacked
  bool gzipped_ = false;
  bool ended_ = false;
};

at::Tensor require_labels(const at::Tensor& labels, const std::filesystem::path& path) {
  if (labels.dim() != 1) {
    throw damaged(path.string(), "expected labels [N], found [{}]", fmt::join(labels.sizes(), ", "));
  }
  const auto* values = labels.const_data_ptr<uint8_t>();
  const auto* bad = std::find_if(values, values + labels.numel(), [](uint8_t label) { return label > 9; });
  if (bad != values + labels.numel()) {
    throw damaged(path.string(), "expected labels from 0 to 9, found {} for sample {}", *bad, bad - values);
  }
  auto classes = at::empty(labels.sizes(), at::kLong);
  std::copy_n(values, labels.numel(), classes.data_ptr<int64_t>());  // .to() would start OpenMP's threads
  return classes;
}

at::Tensor require_images(const at::Tensor& images, const std::filesystem::path& path) {
  if (images.dim() != 3 || images.size(1) != 28 || images.size(2) != 28) {
    throw damaged(path.string(), "expected images [N, 28, 28], found [{}]", fmt::join(images.sizes(), ", "));
  }
  return images.unsqueeze(1);
}

std::filesystem::path find(const std::filesystem::path& dir, const std::string& name) {
  for (const auto& candidate : {dir / (name + ".gz"), dir / name}) {
    std::error_code unknown;  // if the check fails, reading the file reports the error
    if (std::filesystem::exists(candidate, unknown) || unknown) return candidate;
  }
  throw Error(
      ErrorCode::kNotFound,
      "found neither {}.gz nor {} in {}; install Debian's package dataset-fashion-mnist (it fills {}) or, where "
      "yoke came by pip, yoke-fashion-mnist; or say where the files are with --data DIR",
      name, name, dir.string(), kFashionMnistDir);
}

}  // namespace

at::Tensor decode_idx(std::string_view bytes, std::string_view name) {
  Reader reader(bytes, name);
  std::array<uint8_t, 4> magic{};
  if (const int64_t count = reader.read(magic.data(), 4); count < 4) {
    throw damaged(name, "expected an IDX file, found only {} bytes{}", count,
                  reader.gzipped() ? " in the gzip data" : "");
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0 || magic[3] > kMaxDimensions) {
    throw damaged(name, "expected an IDX file (00 00 08 and a number of dimensions from 1 to {}), found {:02x}",
                  kMaxDimensions, fmt::join(magic, " "));
  }
  if (magic[2] != kUnsignedByte) {
    throw damaged(name, "expected IDX values of type 08 (unsigned byte), found type {:02x}", magic[2]);
  }

  std::vector<int64_t> sizes;
  int64_t num_values = 1;
  bool possible = true;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<uint8_t, 4> raw{};
    if (reader.read(raw.data(), 4) < 4) {
      throw damaged(name, "expected {} dimensions in the IDX header, found {}", magic[3], i);
    }
    sizes.push_back(int64_t{raw[0]} << 24 | raw[1] << 16 | raw[2] << 8 | raw[3]);
    possible = possible && sizes.back() > 0 && !__builtin_mul_overflow(num_values, sizes.back(), &num_values);
  }
  if (!possible || num_values > reader.max_bytes()) {
    throw damaged(name, "its IDX header says [{}] values, which {} bytes{} cannot hold", fmt::join(sizes, ", "),
                  bytes.size(), reader.gzipped() ? " of gzip data" : "");
  }

  auto tensor = at::empty(sizes, at::kByte);
  auto* values = tensor.data_ptr<uint8_t>();
  if (const int64_t count = reader.read(values, num_values); count < num_values) {
    throw damaged(name, "cut short: its IDX header says [{}], which is {} values; found {}", fmt::join(sizes, ", "),
                  num_values, count);
  }
  if (uint8_t more; reader.read(&more, 1) != 0) {
    throw damaged(name, "its IDX header says [{}], which is {} values; found more data after them",
                  fmt::join(sizes, ", "), num_values);
  }
  return tensor;
}

at::Tensor read_idx(const std::filesystem::path& path) { return decode_idx(read_file(path), path.string()); }

FashionMnist read_fashion_mnist(const std::filesystem::path& dir) {
  const auto train_images = find(dir, "train-images-idx3-ubyte"), train_labels = find(dir, "train-labels-idx1-ubyte");
  const auto test_images = find(dir, "t10k-images-idx3-ubyte"), test_labels = find(dir, "t10k-labels-idx1-ubyte");
  const auto read = [](const std::filesystem::path& images_path, const std::filesystem::path& labels_path) {
    auto images = require_images(read_idx(images_path), images_path);
    auto labels = require_labels(read_idx(labels_path), labels_path);
    if (images.size(0) != labels.size(0)) {
      throw damaged(labels_path.string(), "expected as many labels as {} has images, {}; found {}",
                    images_path.filename().string(), images.size(0), labels.size(0));
    }
    return Samples{std::move(images), std::move(labels)};
  };
  auto test = std::async(std::launch::async, read, std::cref(test_images), std::cref(test_labels));
  auto train = read(train_images, train_labels);
  return {std::move(train), test.get()};
}

}  // namespace yoke::train
