// Arrays of NumPy and tensors of safetensors as samples.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <optional>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/infer/source.h"
#include "yoke/train/data/samples.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

class ArrayReader : public Reader {
 public:
  /// `arrays` are views of files.
  ArrayReader(const fs::path& path, Inputs arrays) : arrays_(std::move(arrays)) {
    const auto& [first_name, first] = arrays_.front();
    for (const auto& [name, array] : arrays_) {
      if (array.dim() == 0 || array.size(0) != first.size(0)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}: '{}' has the shape [{}], and '{}' [{}]: the first size is the number of samples, and the same "
                    "for all",
                    printable(path.string()), name, fmt::join(array.sizes(), ", "), first_name,
                    fmt::join(first.sizes(), ", "));
      }
      description_ += fmt::format("{}{} [{}] {}", description_.empty() ? "" : ", ", name,
                                  fmt::join(array.sizes(), ", "), c10::toString(array.scalar_type()));
    }
  }
  int64_t size() const override { return arrays_.front().second.size(0); }
  std::string describe() const override { return description_; }

  Inputs batch(const train::BatchRequest& request) const override {
    Inputs inputs;
    for (const auto& [name, array] : arrays_) {
      auto sizes = array.sizes().vec();
      sizes[0] = request.size();
      // libtorch computes with neither uint16 nor uint32, in which people keep tokens.
      const bool is_unsigned = array.scalar_type() == at::kUInt16 || array.scalar_type() == at::kUInt32;
      auto rows = request.empty(sizes, is_unsigned ? at::kLong : array.scalar_type());
      rows.copy_(array.narrow(0, request.samples().front(), request.size()));  // predict's batches are neighbours
      inputs.emplace_back(name, std::move(rows));
    }
    return inputs;
  }

 private:
  Inputs arrays_;
  std::string description_;
};

at::ScalarType dtype_of_numpy(const std::string& descr, const fs::path& path) {
  constexpr auto kDtypes = std::to_array<std::pair<std::string_view, at::ScalarType>>({{"|b1", at::kBool},
                                                                                       {"|u1", at::kByte},
                                                                                       {"|i1", at::kChar},
                                                                                       {"<i2", at::kShort},
                                                                                       {"<u2", at::kUInt16},
                                                                                       {"<i4", at::kInt},
                                                                                       {"<u4", at::kUInt32},
                                                                                       {"<i8", at::kLong},
                                                                                       {"<f2", at::kHalf},
                                                                                       {"<f4", at::kFloat},
                                                                                       {"<f8", at::kDouble},
                                                                                       {"<c8", at::kComplexFloat},
                                                                                       {"<c16", at::kComplexDouble}});
  for (const auto& [name, dtype] : kDtypes) {
    if (name == descr) return dtype;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "{} has the dtype {}; save it as float32 or int64, for example: "
              "np.save(\"x.npy\", x.astype(np.float32))",
              printable(path.string()), printable(descr));
}

/// The text after `key` and blanks in the head of a .npy file, up to one of `ends`.
std::optional<std::string> value_in_head(std::string_view head, std::string_view key, char end) {
  auto place = head.find(key);
  if (place == head.npos) return std::nullopt;
  head.remove_prefix(place + key.size());
  place = head.find(end);
  if (place == head.npos) return std::nullopt;
  return std::string(trimmed(head.substr(0, place)));
}

}  // namespace

/// Source  numpy/lib/format.py, versions 1.0 to 3.0.
std::shared_ptr<const Reader> open_npy(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kDataLoss, "{} {}", printable(path.string()), why);
  };
  train::FileLayout layout;
  {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    constexpr size_t kBefore = 12;  // magic, version and a length of two or four bytes
    if (text.size() < kBefore || !text.starts_with("\x93NUMPY")) refuse("is not a file of numpy.save");
    const bool is_long = text[6] > 1;
    uint32_t length = 0;
    std::memcpy(&length, text.data() + 8, is_long ? 4 : 2);
    const size_t begin = is_long ? 12 : 10;
    if (text.size() - begin < length) refuse("ends within its head");
    const auto head = text.substr(begin, length);
    const auto descr = value_in_head(head, "'descr': '", '\''), order = value_in_head(head, "'fortran_order':", ',');
    const auto shape = value_in_head(head, "'shape': (", ')');
    if (!descr || !order || !shape) refuse("has fields or objects, and not numbers of one dtype");
    if (*order != "False") refuse("is in Fortran's order; save it with np.save(path, np.ascontiguousarray(x))");
    layout.dtype = dtype_of_numpy(*descr, path);
    layout.offset_bytes = static_cast<int64_t>(begin + length);
    for (const auto word : split_terminated(*shape, ',')) {
      const auto size = parse_int(trimmed(word));
      if (!size || *size < 0) refuse("has a damaged head: its shape is (" + printable(*shape) + ")");
      layout.sizes.push_back(*size);
    }
    if (layout.sizes.empty()) refuse("is one number, and not an array of samples");
  }
  return std::make_shared<ArrayReader>(path, Inputs{{"input", train::map_tensor(path, layout)}});
}

std::shared_ptr<const Reader> open_arrays(const fs::path& path) {
  const train::SafetensorsReader file(path);
  Inputs arrays;
  for (const auto& name : file.names()) arrays.emplace_back(name, file.tensor(name));
  if (arrays.empty()) throw Error(ErrorCode::kInvalidArgument, "{} has no tensors", printable(path.string()));
  return std::make_shared<ArrayReader>(path, std::move(arrays));
}

}  // namespace yoke::infer
