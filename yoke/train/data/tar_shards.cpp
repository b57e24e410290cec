#include "yoke/train/data/tar_shards.h"

#include <cstddef>
#include <set>

#include "yoke/base/error.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/tar_file.h"

namespace yoke::train {
namespace {

// webdataset spells extensions in small letters too, so that cameras' .JPG and .jpg are one.
std::string small_letters(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

struct Member {
  std::string extension;
  detail::TarContent content;
};

}  // namespace

const std::string& TarSample::at(const std::string& extension) const {
  const auto wanted = small_letters(extension);
  for (const auto& [name, bytes] : files) {
    if (name == wanted) return bytes;
  }
  throw Error(ErrorCode::kDataLoss, "the sample {} has no file .{}", key, extension);
}

struct TarShards::Impl {
  struct Entry {
    std::string key;
    size_t shard = 0;
    std::vector<Member> members;
  };
  std::vector<detail::OpenFile> files;
  std::vector<int64_t> sizes;
  std::vector<Entry> entries;

  void add_shard(const std::filesystem::path& path) {
    const auto& file = files.emplace_back(detail::open_file(path));
    const size_t before = entries.size();
    detail::TarReader reader(file);
    std::set<std::string> extensions;  // of the last sample
    while (auto entry = reader.next()) {
      const size_t slash = entry->name.rfind('/'), base = slash == std::string::npos ? 0 : slash + 1;
      const size_t dot = entry->name.find('.', base);
      if (dot == std::string::npos || dot == base) continue;  // not part of a sample: no extension, or a hidden file
      const auto key = entry->name.substr(0, dot);
      if (entries.size() == before || entries.back().key != key) {
        entries.push_back({key, files.size() - 1, {}});
        extensions.clear();
      }
      auto extension = small_letters(entry->name.substr(dot + 1));
      if (!extensions.insert(extension).second) {
        throw Error(ErrorCode::kDataLoss,
                    "{}: the sample {} has two files .{}, and which of them counts is not defined; pack the shard "
                    "again, because `tar -r` and `tar -u` add a file without removing the older one",
                    path.string(), key, extension);
      }
      entries.back().members.push_back({std::move(extension), std::move(entry->content)});
    }
    sizes.push_back(static_cast<int64_t>(entries.size() - before));
  }
};

TarShards::TarShards(const std::vector<std::filesystem::path>& paths) {
  detail::check_that(!paths.empty(), "tar shards: no files are given");
  auto impl = std::make_shared<Impl>();
  for (const auto& path : paths) impl->add_shard(path);
  impl_ = std::move(impl);
}

int64_t TarShards::size() const { return static_cast<int64_t>(impl_->entries.size()); }
const std::vector<int64_t>& TarShards::shard_sizes() const { return impl_->sizes; }
const std::string& TarShards::name(int64_t index) const { return impl_->entries[static_cast<size_t>(index)].key; }

TarSample TarShards::sample(int64_t index) const {
  const auto& entry = impl_->entries[static_cast<size_t>(index)];
  TarSample sample{entry.key, {}};
  for (const auto& member : entry.members) {
    sample.files.emplace_back(member.extension, detail::read_content(impl_->files[entry.shard], member.content));
  }
  return sample;
}

}  // namespace yoke::train
