#include "yoke/train/data/tar_shards.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/read_at.h"

namespace yoke::train {
namespace {

constexpr int64_t kBlockBytes = 512;
constexpr int64_t kMaxNameBytes = 1 << 20;  // limit for long names and pax records

// A regular file in a shard.
struct Member {
  std::string extension;
  int64_t offset = 0;
  int64_t size = 0;
};

using Block = std::array<char, kBlockBytes>;

std::string_view field(const Block& block, size_t offset, size_t size) {
  const std::string_view whole(block.data() + offset, size);
  return whole.substr(0, whole.find('\0'));
}

// Reads octal digits between blanks, or GNU's binary form for large numbers; returns nullopt for any other form.
std::optional<int64_t> number(const Block& block, size_t offset, size_t size) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block.data()) + offset;
  if (bytes[0] == 0x80) {
    uint64_t value = 0;
    for (size_t i = 1; i < size; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | bytes[i];
    }
    return static_cast<int64_t>(value);
  }
  int64_t value = 0;
  size_t i = 0, num_digits = 0;
  while (i < size && bytes[i] == ' ') ++i;
  for (; i < size && bytes[i] >= '0' && bytes[i] <= '7'; ++i, ++num_digits) value = value * 8 + (bytes[i] - '0');
  for (; i < size; ++i) {
    if (bytes[i] != ' ' && bytes[i] != '\0') return std::nullopt;
  }
  if (num_digits == 0 || num_digits > 20) return std::nullopt;
  return value;
}

bool checksum_is_right(const Block& block) {
  constexpr size_t kOffset = 148, kSize = 8;
  int64_t sum = 0, with_signs = 0;  // some old programs sum the bytes as signed values
  for (size_t i = 0; i < block.size(); ++i) {
    const char c = i >= kOffset && i < kOffset + kSize ? ' ' : block[i];
    sum += static_cast<unsigned char>(c);
    with_signs += static_cast<signed char>(c);
  }
  const auto stored = number(block, kOffset, kSize);
  return stored && (*stored == sum || *stored == with_signs);
}

// Reads the headers of one shard.
class Headers {
 public:
  explicit Headers(const detail::OpenFile& file) : file_(file) {}

  struct Entry {
    std::string name;
    int64_t offset = 0;
    int64_t size = 0;
  };

  // Returns the next regular file; nullopt at the end.
  std::optional<Entry> next() {
    std::string long_name;
    int64_t long_size = -1;  // -1: no long size was read
    while (true) {
      if (position_ == file_.size_bytes) return std::nullopt;  // some programs leave out the blocks of zeros at the end
      Block block;
      detail::read_at(file_, position_, std::as_writable_bytes(std::span(block)));
      if (std::all_of(block.begin(), block.end(), [](char c) { return c == 0; })) return std::nullopt;
      if (!checksum_is_right(block)) fail("a header whose checksum is wrong");
      const auto stored_size = number(block, 124, 12);
      if (!stored_size) fail("a header without a size");
      const int64_t header = position_;
      const int64_t size = long_size >= 0 ? long_size : *stored_size;
      const int64_t offset = header + kBlockBytes;
      if (size > file_.size_bytes - offset) fail("a file that is longer than the rest");
      const char type = block[156];
      if (type == 'L' || type == 'x') {
        if (*stored_size > kMaxNameBytes) fail("a name of over 1 MiB");
        std::string text(static_cast<size_t>(*stored_size), '\0');
        detail::read_at(file_, offset, std::as_writable_bytes(std::span(text)));
        if (type == 'L') {
          long_name = text.substr(0, text.find('\0'));
        } else {
          read_pax(text, long_name, long_size);
        }
        position_ = std::min(after(offset, *stored_size), file_.size_bytes);
        continue;
      }
      position_ = std::min(after(offset, size), file_.size_bytes);
      if (type == '0' || type == '\0' || type == '7') return Entry{name_of(block, long_name), offset, size};
      long_name.clear();
      long_size = -1;
    }
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::kDataLoss,
                "{}: there is {} at byte {}; the file is damaged, or is not an uncompressed tar file",
                file_.path.string(), what, position_);
  }

  static int64_t after(int64_t offset, int64_t size) {
    return offset + (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }

  static std::string name_of(const Block& block, const std::string& long_name) {
    if (!long_name.empty()) return long_name;
    const std::string name(field(block, 0, 100));
    const auto prefix = field(block, 345, 155);
    // Only the POSIX format has a prefix; the GNU format has other fields at this offset.
    const bool is_posix = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
    return is_posix && !prefix.empty() ? std::string(prefix) + "/" + name : name;
  }

  // Records are "LENGTH KEY=VALUE\n", and the length counts the whole record.
  void read_pax(std::string_view text, std::string& name, int64_t& size) const {
    while (!text.empty()) {
      size_t length = 0, i = 0;
      for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && length <= text.size(); ++i) {
        length = length * 10 + static_cast<size_t>(text[i] - '0');
      }
      if (i >= text.size() || text[i] != ' ' || length <= i + 1 || length > text.size() || text[length - 1] != '\n') {
        fail("a pax header that cannot be read");
      }
      const auto record = text.substr(i + 1, length - i - 2);
      const auto equals = record.find('=');
      const auto key = record.substr(0, equals), value = record.substr(std::min(equals, record.size() - 1) + 1);
      if (key == "path") name = value;
      if (key == "size") {
        int64_t parsed = 0;
        for (const char c : value) {
          if (c < '0' || c > '9' || parsed > std::numeric_limits<int64_t>::max() / 20) fail("a pax size that is wrong");
          parsed = parsed * 10 + (c - '0');
        }
        size = parsed;
      }
      text.remove_prefix(length);
    }
  }

  const detail::OpenFile& file_;
  int64_t position_ = 0;
};

}  // namespace

const std::string& TarSample::at(const std::string& extension) const {
  for (const auto& [name, bytes] : files) {
    if (name == extension) return bytes;
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
    Headers headers(file);
    while (const auto entry = headers.next()) {
      const size_t slash = entry->name.rfind('/'), base = slash == std::string::npos ? 0 : slash + 1;
      const size_t dot = entry->name.find('.', base);
      if (dot == std::string::npos || dot == base) continue;  // not part of a sample: no extension, or a hidden file
      const auto key = entry->name.substr(0, dot);
      if (entries.size() == before || entries.back().key != key) entries.push_back({key, files.size() - 1, {}});
      entries.back().members.push_back({entry->name.substr(dot + 1), entry->offset, entry->size});
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

TarSample TarShards::sample(int64_t index) const {
  const auto& entry = impl_->entries[static_cast<size_t>(index)];
  TarSample sample{entry.key, {}};
  for (const auto& member : entry.members) {
    auto& bytes = sample.files.emplace_back(member.extension, std::string()).second;
    bytes.resize(static_cast<size_t>(member.size));
    detail::read_at(impl_->files[entry.shard], member.offset, std::as_writable_bytes(std::span(bytes)));
  }
  return sample;
}

}  // namespace yoke::train
