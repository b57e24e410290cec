#include "yoke/train/format/safetensors_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/format/safetensors_index.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);  // cannot overflow, because the header has been checked
  }
  return strides;
}

int64_t bytes_of(const TensorSlot& slot, const std::vector<int64_t>& shape) {
  auto bytes = static_cast<int64_t>(c10::elementSize(slot.dtype));
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const fs::path& path) : path_(path) {
  if (path.native().ends_with(".index.json")) {
    open_index();
    return;
  }
  TensorMapping mapping(path);
  auto header = parse_safetensors_header(mapping.bytes(), path.string());
  for (size_t i = 0; i < header.slots.size(); ++i) places_.emplace(header.slots[i].name, Address{0, i});
  metadata_ = header.metadata;
  shards_.push_back({path, std::move(mapping), std::move(header)});
}

void SafetensorsReader::open_index() {
  const TensorMapping index(path_);
  constexpr size_t kMaxIndexBytes = 100'000'000;
  const std::string_view text(reinterpret_cast<const char*>(index.bytes().data()), index.bytes().size());
  if (text.size() > kMaxIndexBytes) {
    throw Error(ErrorCode::kDataLoss, "{}: an index of {} bytes, over the limit of {}", path_.string(), text.size(),
                kMaxIndexBytes);
  }
  std::map<std::string, size_t> shard_of;               // by file name
  std::vector<std::map<std::string, size_t>> slots_of;  // for each shard, by tensor name
  for (const auto& [name, file] : parse_safetensors_index(text, path_.string())) {
    const auto [known, is_new] = shard_of.emplace(file, shards_.size());
    const size_t shard = known->second;
    if (is_new) {
      const auto path = path_.parent_path() / file;
      try {
        TensorMapping mapping(path);
        auto header = parse_safetensors_header(mapping.bytes(), path.string());
        metadata_.insert(header.metadata.begin(), header.metadata.end());
        auto& slots = slots_of.emplace_back();
        for (size_t i = 0; i < header.slots.size(); ++i) slots.emplace(header.slots[i].name, i);
        shards_.push_back({path, std::move(mapping), std::move(header)});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotFound) throw;
        throw Error(error.code(), "{}: the shard {} with tensor '{}' is missing: {}", path_.string(), file, name,
                    error.what());
      }
    }
    const auto found = slots_of[shard].find(name);
    if (found == slots_of[shard].end()) {
      throw Error(ErrorCode::kDataLoss, "{}: tensor '{}' should be in {}, which has no such tensor", path_.string(),
                  name, shards_[shard].path.string());
    }
    places_.emplace(name, Address{shard, found->second});
  }
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& entry : places_) names.push_back(entry.first);
  return names;
}

const SafetensorsReader::Address& SafetensorsReader::place_of(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw Error(ErrorCode::kNotFound, "{}: there is no tensor '{}' among its {} tensors", path_.string(), name,
                places_.size());
  }
  return found->second;
}

const TensorSlot& SafetensorsReader::slot(const std::string& name) const {
  const auto& place = place_of(name);
  return shards_[place.shard].header.slots[place.slot];
}

const TensorSlot& SafetensorsReader::readable_slot(const std::string& name) const {
  const auto& found = slot(name);
  if (found.dtype != at::ScalarType::Undefined) return found;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "{}: libtorch cannot have tensor '{}' of the dtype {} and the shape [{}]; SafetensorsReader::bytes returns "
      "its values as they are stored",
      path_.string(), name, found.dtype_name, fmt::join(found.shape, ", "));
}

at::Tensor SafetensorsReader::view(const std::string& name, int64_t first_byte,
                                   const std::vector<int64_t>& shape) const {
  const auto& place = place_of(name);
  const auto& shard = shards_[place.shard];
  const auto& slot = shard.header.slots[place.slot];
  const int64_t begin = shard.header.num_bytes + slot.begin_byte + first_byte, num_bytes = bytes_of(slot, shape);
  const auto bytes = shard.mapping.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(num_bytes));
  if (slot.dtype == at::kBool && !are_bools(bytes)) {
    throw Error(ErrorCode::kDataLoss, "{}: tensor '{}' has a BOOL that is neither 0 nor 1", shard.path.string(), name);
  }
  const auto alignment = static_cast<int64_t>(c10::elementSize(slot.dtype));
  return view_of(shard.mapping.storage(begin, num_bytes, alignment), slot.dtype, 0, shape, dense_strides(shape));
}

at::Tensor SafetensorsReader::tensor(const std::string& name) const { return view(name, 0, readable_slot(name).shape); }

at::Tensor SafetensorsReader::rows(const std::string& name, int64_t first, int64_t count) const {
  const auto& found = readable_slot(name);
  auto shape = found.shape;
  if (shape.empty() || first < 0 || count < 0 || first > shape[0] || count > shape[0] - first) {
    throw Error(ErrorCode::kInvalidArgument, "{}: tensor '{}' of shape [{}] has no {} rows from row {} on",
                path_.string(), name, fmt::join(shape, ", "), count, first);
  }
  shape[0] = 1;
  const int64_t row_bytes = bytes_of(found, shape);
  shape[0] = count;
  return view(name, first * row_bytes, shape);
}

at::Tensor SafetensorsReader::elements(const std::string& name, int64_t first, int64_t count) const {
  const auto& found = readable_slot(name);
  const int64_t element_bytes = bytes_of(found, {}), size = (found.end_byte - found.begin_byte) / element_bytes;
  if (first < 0 || count < 0 || first > size || count > size - first) {
    throw Error(ErrorCode::kInvalidArgument, "{}: tensor '{}' of {} elements has no {} from element {} on",
                path_.string(), name, size, count, first);
  }
  return view(name, first * element_bytes, {count});
}

std::span<const std::byte> SafetensorsReader::bytes(const std::string& name) const {
  const auto& shard = shards_[place_of(name).shard];
  const auto& found = slot(name);
  return shard.mapping.bytes().subspan(static_cast<size_t>(shard.header.num_bytes + found.begin_byte),
                                       static_cast<size_t>(found.end_byte - found.begin_byte));
}

TensorMap SafetensorsReader::tensors() const {
  TensorMap tensors;
  for (const auto& entry : places_) tensors.emplace(entry.first, tensor(entry.first));
  return tensors;
}

}  // namespace yoke::train
