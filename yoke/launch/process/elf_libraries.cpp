#include "yoke/launch/process/elf_libraries.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::launch {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Dynamic = ElfW(Dyn);

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxDynamic = 65'536;  ///< The number of entries that are read. Programs have about thirty.

/// Returns false if the file is too short. The file is not mapped, because a linker may be writing it.
bool read_at(int fd, void* to, size_t size, uint64_t offset) {
  return offset <= INT64_MAX && pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

template <typename T>
std::optional<std::vector<T>> read_array(int fd, size_t count, uint64_t offset) {
  std::vector<T> result(count);
  if (!read_at(fd, result.data(), count * sizeof(T), offset)) return std::nullopt;
  return result;
}

bool is_ours(const Header& header) {
  constexpr auto kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr auto kData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == kClass &&
         header.e_ident[EI_DATA] == kData && (header.e_type == ET_EXEC || header.e_type == ET_DYN) &&
         header.e_phentsize == sizeof(Segment);
}

std::string text_at(int fd, uint64_t offset) {
  char text[kMaxNameBytes] = "";
  const ssize_t count = pread(fd, text, sizeof text - 1, static_cast<off_t>(offset));
  return count > 0 ? std::string(text) : std::string();
}

}  // namespace

std::optional<std::vector<std::string>> needed_libraries(const std::filesystem::path& program) {
  const UniqueFd fd(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw system_error(errno, program.string());
  Header header;
  if (!read_at(fd.value(), &header, sizeof header, 0) || !is_ours(header)) return std::nullopt;
  const auto segments = read_array<Segment>(fd.value(), header.e_phnum, header.e_phoff);
  if (!segments) return std::nullopt;

  std::vector<Dynamic> entries;
  for (const auto& segment : *segments) {
    if (segment.p_type != PT_DYNAMIC || segment.p_filesz / sizeof(Dynamic) > kMaxDynamic) continue;
    auto found = read_array<Dynamic>(fd.value(), segment.p_filesz / sizeof(Dynamic), segment.p_offset);
    if (!found) return std::nullopt;
    entries = std::move(*found);
  }
  std::optional<uint64_t> strings;  // first the address in memory, then the offset in the file
  for (const auto& entry : entries) {
    if (entry.d_tag != DT_STRTAB) continue;
    for (const auto& segment : *segments) {
      if (segment.p_type == PT_LOAD && entry.d_un.d_ptr >= segment.p_vaddr &&
          entry.d_un.d_ptr - segment.p_vaddr < segment.p_filesz) {
        strings = entry.d_un.d_ptr - segment.p_vaddr + segment.p_offset;
      }
    }
  }
  if (!strings) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) names.push_back(text_at(fd.value(), *strings + entry.d_un.d_val));
  }
  return names;
}

}  // namespace yoke::launch
