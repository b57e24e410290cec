#include "yoke/train/format/safetensors_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

/// Reads the JSON one event at a time, so that a malicious index cannot cause a large allocation. Uses only
/// "weight_map".
class IndexReader : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(const std::string& what) : what_(what) {}

  std::map<std::string, std::string> files;
  bool has_weight_map = false;

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary data"); }

  bool string(string_t& file) override {
    if (!in_weight_map_ || depth_ != 2) return value("a string");
    if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos || file.find('\0') != file.npos) {
      fail("the file of tensor '{}' is not a plain name: '{}'", name_, file);
    }
    files.emplace(name_, std::move(file));
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ > 0) value("an object", depth_ == 1);
    ++depth_;
    return true;
  }

  bool start_array(size_t) override {
    value("a list");
    ++depth_;
    return true;
  }

  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      in_weight_map_ = name == "weight_map";
      if (in_weight_map_ && std::exchange(has_weight_map, true)) fail("'weight_map' appears twice");
    } else if (depth_ == 2 && in_weight_map_) {
      if (files.contains(name)) fail("tensor '{}' appears twice", name);
      name_ = std::move(name);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("the index is not a JSON object (at its byte {})", position);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kDataLoss, what_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  bool value(std::string_view found, bool fits_weight_map = false) const {
    if (depth_ == 0) fail("the index is {}, not an object", found);
    if (in_weight_map_ && depth_ == 1 && !fits_weight_map) fail("'weight_map' is {}, not an object", found);
    if (in_weight_map_ && depth_ >= 2) fail("the file of tensor '{}' is {}, not a name", name_, found);
    return true;
  }

  const std::string& what_;
  int64_t depth_ = 0;
  bool in_weight_map_ = false;
  std::string name_;
};

void remove_file(const fs::path& path) {
  std::error_code error;
  if (fs::remove(path, error); error) throw system_error(error.value(), "removing " + path.string());
}

/// Makes earlier removals and renames durable before the next step.
void sync_folder(const fs::path& folder) {
  if (const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); fd) fsync(fd.value());
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& what) {
  IndexReader reader(what);
  if (const auto zero = text.find('\0'); zero != text.npos) {  // which the parser would take for the end
    throw Error(ErrorCode::kDataLoss, "{}: the index is not a JSON object (at its byte {})", what, zero);
  }
  json::sax_parse(text, &reader);
  if (!reader.has_weight_map) throw Error(ErrorCode::kDataLoss, "{}: the index has no 'weight_map'", what);
  return std::move(reader.files);
}

fs::path write_safetensors_shards(const fs::path& folder, const TensorMap& tensors, const StringMap& metadata,
                                  const ShardOptions& options) {
  if (options.max_shard_bytes < 1 || options.stem.empty() || options.stem.find('/') != options.stem.npos) {
    throw Error(ErrorCode::kInvalidArgument, "writing shards to {}: the stem is '{}' and max_shard_bytes {}",
                folder.string(), options.stem, options.max_shard_bytes);
  }
  lay_out_safetensors(tensors, metadata);  // refuses invalid tensors before any file is written
  std::vector<TensorMap> shards(1);
  int64_t shard_bytes = 0, total_bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (!shards.back().empty() && bytes > options.max_shard_bytes - shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().emplace(name, tensor);
    shard_bytes += bytes;
    total_bytes += bytes;
  }
  constexpr size_t kMaxShards = 99'999;  // five digits
  if (shards.size() > kMaxShards) {
    throw Error(ErrorCode::kInvalidArgument, "writing shards to {}: {} of at most {} bytes, over the limit of {}",
                folder.string(), shards.size(), options.max_shard_bytes, kMaxShards);
  }

  const auto single = options.stem + ".safetensors", index = single + ".index.json";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "writing shards to " + folder.string());
  if (shards.size() == 1) {
    const auto path = folder / single;
    write_safetensors(path, tensors, metadata);
    remove_file(folder / index);
    return path;
  }
  std::vector<std::string> names;  // names of all files to write; the index comes last
  const auto new_path = [&](const std::string& name) { return folder / ("." + name + ".new"); };
  bool replaces_shards = false;
  try {
    std::map<std::string, std::string> map;  // ordered_json would search all names for each insertion
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto& name =
          names.emplace_back(fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem, i + 1, shards.size()));
      write_safetensors(new_path(name), shards[i], metadata);
      replaces_shards = replaces_shards || fs::exists(folder / name, error);
      for (const auto& entry : shards[i]) map[entry.first] = name;
    }
    const nlohmann::ordered_json document = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
    const auto text = document.dump(2) + "\n";
    const auto path = new_path(names.emplace_back(index));
    replace_file(path, text);
  } catch (...) {
    for (const auto& name : names) fs::remove(new_path(name), error);
    throw;
  }
  // All new files are on disk; renaming needs no more space.
  if (replaces_shards) {
    remove_file(folder / index);
    sync_folder(folder);
  }
  for (const auto& name : names) {
    if (name == index) sync_folder(folder);
    fs::rename(new_path(name), folder / name, error);
    if (error) throw system_error(error.value(), "writing " + (folder / name).string());
  }
  remove_file(folder / single);  // Hugging Face's libraries would read it instead of the index
  sync_folder(folder);
  return folder / index;
}

}  // namespace yoke::train
