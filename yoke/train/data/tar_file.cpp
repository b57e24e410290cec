#include "yoke/train/data/detail/tar_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kBlockBytes = 512;
constexpr int64_t kMaxNameBytes = 1 << 20;    // limit for long names and pax records
constexpr int64_t kMaxSparseBytes = 1 << 30;  // a header of 512 bytes may say any size

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

// A number of a pax record or of a sparse file's map.
std::optional<int64_t> decimal(std::string_view text) {
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > std::numeric_limits<int64_t>::max() / 20) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return text.empty() ? std::nullopt : std::optional(value);
}

// Removes the text up to `end` from `text`, and returns it; all of the text if there is no `end`.
std::string_view take_until(std::string_view& text, char end) {
  const auto part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
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

Block read_block(const OpenFile& file, int64_t position) {
  Block block;
  read_at(file, position, std::as_writable_bytes(std::span(block)));
  return block;
}

std::string name_in(const Block& block) {
  const std::string name(field(block, 0, 100));
  const auto prefix = field(block, 345, 155);
  // Only the POSIX format has a prefix; the GNU format has other fields at this offset.
  const bool is_posix = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
  return is_posix && !prefix.empty() ? std::string(prefix) + "/" + name : name;
}

// The position of a header, for errors.
struct HeaderPosition {
  const OpenFile& file;
  int64_t position;

  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::kDataLoss,
                "{}: there is {} at byte {}; the file is damaged, or is not an uncompressed tar file",
                file.path.string(), what, position);
  }
};

using Map = std::vector<std::pair<int64_t, int64_t>>;  // the first byte and the number of bytes of each stored part

// What the headers before a file's own header say about it.
struct Extended {
  std::string name, sparse_name;
  std::optional<int64_t> size, sparse_size;
  Map map;                      // of the pax forms 0.0 and 0.1
  bool map_is_in_data = false;  // the pax form 1.0
};

// Records are "LENGTH KEY=VALUE\n", and the length counts the whole record.
void read_pax(const HeaderPosition& place, std::string_view text, Extended& extended) {
  const auto parsed = [&](std::string_view value) {
    const auto size = decimal(value);
    if (!size) place.fail("a pax number that is wrong");
    return *size;
  };
  while (!text.empty()) {
    size_t length = 0, i = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && length <= text.size(); ++i) {
      length = length * 10 + static_cast<size_t>(text[i] - '0');
    }
    if (i >= text.size() || text[i] != ' ' || length <= i + 1 || length > text.size() || text[length - 1] != '\n') {
      place.fail("a pax header that cannot be read");
    }
    auto value = text.substr(i + 1, length - i - 2);
    const auto key = take_until(value, '=');
    if (key == "path") extended.name = value;
    if (key == "size") extended.size = parsed(value);
    if (key == "GNU.sparse.name") extended.sparse_name = value;
    if (key == "GNU.sparse.size" || key == "GNU.sparse.realsize") extended.sparse_size = parsed(value);
    if (key == "GNU.sparse.major") extended.map_is_in_data = parsed(value) > 0;
    if (key == "GNU.sparse.offset") extended.map.emplace_back(parsed(value), 0);
    if (key == "GNU.sparse.numbytes" && !extended.map.empty()) extended.map.back().second = parsed(value);
    while (key == "GNU.sparse.map" && !value.empty()) {
      const auto begin = parsed(take_until(value, ','));
      extended.map.emplace_back(begin, parsed(take_until(value, ',')));
    }
    text.remove_prefix(length);
  }
}

// GNU's own form: four entries in the header, others in blocks between the header and the content.
Map gnu_map(const HeaderPosition& place, const Block& header, TarContent& content) {
  Map map;
  const auto add = [&](const Block& block, size_t first, size_t count) {
    for (size_t at = first; at < first + 24 * count && block[at + 12] != '\0'; at += 24) {
      const auto begin = number(block, at, 12), bytes = number(block, at + 12, 12);
      if (!begin || !bytes) place.fail("a sparse file whose map cannot be read");
      map.emplace_back(*begin, *bytes);
    }
  };
  add(header, 386, 4);
  for (bool goes_on = header[482] != '\0'; goes_on; content.stored_at += kBlockBytes) {
    const auto block = read_block(place.file, content.stored_at);
    add(block, 0, 21);
    goes_on = block[504] != '\0';
  }
  return map;
}

// The pax form 1.0: the content begins with the number of parts and the two numbers of each. Each number is a line, and
// the lines fill whole blocks.
Map pax_map(const HeaderPosition& place, TarContent& content) {
  std::string text;
  size_t position = 0;
  const auto next_number = [&] {
    size_t end = 0;
    while ((end = text.find('\n', position)) == text.npos) {
      if (content.num_bytes < kBlockBytes || text.size() - position > kBlockBytes) {
        place.fail("a sparse file whose map does not end");
      }
      const auto block = read_block(place.file, content.stored_at);
      text.append(block.data(), block.size());
      content.stored_at += kBlockBytes;
      content.num_bytes -= kBlockBytes;
    }
    const auto value = decimal(std::string_view(text).substr(position, end - position));
    if (!value) place.fail("a sparse file whose map cannot be read");
    position = end + 1;
    return *value;
  };
  Map map;
  for (int64_t left = next_number(); left > 0; --left) {
    const int64_t begin = next_number();
    map.emplace_back(begin, next_number());
  }
  return map;
}

// REQUIRES: `content` describes the stored bytes.
void make_sparse(const HeaderPosition& place, int64_t num_bytes, const Map& map, TarContent& content) {
  if (num_bytes > kMaxSparseBytes) {
    throw Error(ErrorCode::kDataLoss, "{}: the sparse file at byte {} has {} bytes, more than the limit of {}",
                place.file.path.string(), place.position, num_bytes, kMaxSparseBytes);
  }
  int64_t end = 0, stored = 0;
  for (const auto& [begin, bytes] : map) {
    if (begin < end || begin > num_bytes || bytes > num_bytes - begin) {
      place.fail("a sparse file whose parts overlap, or exceed its size");
    }
    if (bytes > 0) content.parts.push_back({begin, bytes, content.stored_at + stored});
    end = begin + bytes;
    stored += bytes;
  }
  if (stored != content.num_bytes) place.fail("a sparse file whose map does not fit its content");
  content.is_sparse = true;
  content.num_bytes = num_bytes;
}

}  // namespace

TarReader::TarReader(const OpenFile& file) : file_(file) {
  if (file.size_bytes > 0) return;
  throw Error(ErrorCode::kDataLoss, "{} has 0 bytes; even a tar file without entries has two blocks of zeros",
              file.path.string());
}

std::optional<TarEntry> TarReader::next() {
  Extended extended;
  while (true) {
    if (position_ == file_.size_bytes) return std::nullopt;  // some programs leave out the blocks of zeros at the end
    const HeaderPosition place{file_, position_};
    const auto block = read_block(file_, position_);
    if (std::ranges::all_of(block, [](char c) { return c == 0; })) return std::nullopt;
    if (!checksum_is_right(block)) place.fail("a header whose checksum is wrong");
    const auto stored_size = number(block, 124, 12);
    if (!stored_size) place.fail("a header without a size");
    const char type = block[156];
    const bool is_extension = type == 'L' || type == 'x' || type == 'X';
    const bool is_regular = type == '0' || type == '\0' || type == '7' || type == 'S';
    TarContent content{.stored_at = position_ + kBlockBytes,
                       .num_bytes = is_extension ? *stored_size : extended.size.value_or(*stored_size)};
    const auto map = type == 'S' ? gnu_map(place, block, content) : Map();
    if (content.num_bytes > file_.size_bytes - content.stored_at) place.fail("a file that is longer than the rest");
    position_ = content.stored_at + (content.num_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    position_ = std::min(position_, file_.size_bytes);
    if (is_extension) {
      if (content.num_bytes > kMaxNameBytes) place.fail("a name of over 1 MiB");
      const auto text = read_content(file_, content);
      if (type == 'L') {
        extended.name = text.substr(0, text.find('\0'));
      } else {
        read_pax(place, text, extended);
      }
    } else if (!is_regular) {
      extended = {};
    } else {
      if (type == 'S') {
        const auto size = number(block, 483, 12);
        if (!size) place.fail("a sparse file without a size");
        make_sparse(place, *size, map, content);
      } else if (extended.sparse_size) {
        const auto pax = extended.map_is_in_data ? pax_map(place, content) : std::move(extended.map);
        make_sparse(place, *extended.sparse_size, pax, content);
      }
      auto& name = extended.sparse_name.empty() ? extended.name : extended.sparse_name;
      return TarEntry{name.empty() ? name_in(block) : std::move(name), std::move(content)};
    }
  }
}

std::string read_content(const OpenFile& file, const TarContent& content) {
  std::string bytes(static_cast<size_t>(content.num_bytes), '\0');
  const auto all = std::as_writable_bytes(std::span(bytes));
  if (!content.is_sparse) read_at(file, content.stored_at, all);
  for (const auto& part : content.parts) {
    read_at(file, part.stored_at,
            all.subspan(static_cast<size_t>(part.begin_byte), static_cast<size_t>(part.num_bytes)));
  }
  return bytes;
}

}  // namespace yoke::train::detail
