#include "yoke/train/format/detail/pt_layout.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/format/detail/pt_dtypes.h"

namespace yoke::train {
namespace {

constexpr int64_t kMaxPickleBytes = 64 << 20;  // enough for a state_dict with a million tensors

/// Throws kDataLoss with the file's name and the reason.
template <typename... Args>
[[noreturn]] void refuse_file(const std::string& what, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kDataLoss, "{}: {}", what, fmt::format(format, std::forward<Args>(args)...));
}

std::string_view text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- The archive

PtLayout open_archive(std::span<const std::byte> file, const std::string& what) {
  auto entries = parse_zip(file, what);
  std::erase_if(entries, [](const auto& entry) { return entry.first.starts_with("__MACOSX/"); });  // what macOS adds

  // All entries are in one folder; torch.save names the folder after the file.
  const auto& first = entries.empty() ? std::string() : entries.begin()->first;
  const std::string prefix = first.substr(0, first.find('/') + 1);
  const auto find = [&](const std::string& name) {
    const auto found = entries.find(prefix + name);
    return found == entries.end() ? nullptr : &found->second;
  };
  const auto content = [&](const ZipEntry& entry, const std::string& name) {
    if (entry.content_bytes > kMaxPickleBytes) {
      refuse_file(what, "its {} has {} bytes, more than the limit of {}", name, entry.content_bytes, kMaxPickleBytes);
    }
    std::vector<std::byte> bytes(static_cast<size_t>(entry.content_bytes));
    read_zip_content(file, entry, name, what, bytes);
    return bytes;
  };
  for (const auto& entry : entries) {
    if (!entry.first.starts_with(prefix)) {
      refuse_file(what, "the entry '{}' is not in the folder '{}'", entry.first, prefix);
    }
  }
  if (find("constants.pkl") != nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{}: a TorchScript archive; convert it in Python: "
                "torch.save(torch.jit.load('OLD.pt', map_location='cpu').state_dict(), 'NEW.pt'); if C++'s torch::save "
                "wrote it, torch::load(model, path) reads it",
                what);
  }
  const auto* data = find("data.pkl");
  if (prefix.empty() || data == nullptr) refuse_file(what, "a zip file, but not from torch.save: it has no data.pkl");
  if (const auto* order = find("byteorder"); order != nullptr) {
    const auto bytes = content(*order, "byteorder");
    const auto text = text_of_bytes(bytes);
    if (text != "little") {
      refuse_file(what, "its byte order is '{}'; save it on a little-endian machine", text.substr(0, 20));
    }
  }
  PtLayout layout{.noun = "entry", .folder = "data/"};
  layout.pickle_bytes = content(*data, "data.pkl");
  layout.pickle = parse_pickle(layout.pickle_bytes, what);
  const auto folder = prefix + "data/";
  for (const auto& [name, entry] : entries) {
    if (name.starts_with(folder)) layout.storages.emplace(name.substr(folder.size()), PtLayout::Part{entry, true});
  }
  return layout;
}

// ---- The layout before torch 1.6

/// Such a file begins with a pickle of torch's magic number, a long integer. From protocol 4 on, a pickle begins with a
/// frame's size.
bool has_magic_number(std::span<const std::byte> file) {
  const auto text = text_of_bytes(file.first(std::min<size_t>(file.size(), 32)));
  constexpr std::string_view kMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  return text.starts_with('\x80') && (text.substr(std::min<size_t>(text.size(), 2)).starts_with(kMagic) ||
                                      text.substr(std::min<size_t>(text.size(), 11)).starts_with(kMagic));
}

/// Five pickles: the magic number, the version of the layout, facts about the machine, the content, and a list of the
/// storages' keys. Then for each key the number of elements (int64), and the elements.
/// Source  torch/serialization.py, _legacy_save and _legacy_load.
PtLayout open_old_layout(std::span<const std::byte> file, const std::string& what) {
  size_t position = 0;
  const auto next_pickle = [&] {
    const auto rest = file.subspan(position);
    auto pickle = parse_first_pickle(rest.first(std::min<size_t>(rest.size(), kMaxPickleBytes)), what);
    position += pickle.num_bytes;
    return pickle;
  };
  next_pickle();  // the magic number
  const auto version_pickle = next_pickle();
  const auto* version = std::get_if<int64_t>(&version_pickle.nodes[version_pickle.root]);
  if (version == nullptr || *version != 1001) refuse_file(what, "its layout is not of the version 1001 of torch.save");
  next_pickle();  // about the machine; storages are little-endian on all machines
  PtLayout layout{.noun = "storage", .folder = ""};
  layout.pickle = next_pickle();
  std::map<std::string_view, const PickleStorage*> described;
  for (const auto& node : layout.pickle.nodes) {
    const auto* storage = std::get_if<PickleStorage>(&node);
    if (storage == nullptr) continue;
    const auto* known = described.emplace(storage->key, storage).first->second;
    if (known->dtype != storage->dtype || known->num_elements != storage->num_elements) {
      refuse_file(what, "the storage '{}' has {} elements of {}, and elsewhere {} of {}", storage->key,
                  known->num_elements, known->dtype, storage->num_elements, storage->dtype);
    }
  }

  const auto keys_pickle = next_pickle();
  const auto* keys = std::get_if<PickleList>(&keys_pickle.nodes[keys_pickle.root]);
  if (keys == nullptr) refuse_file(what, "it has no list of its storages");
  for (const auto ref : keys->items) {
    const auto* key = std::get_if<std::string_view>(&keys_pickle.nodes[ref]);
    if (key == nullptr) refuse_file(what, "a storage's key is not a text");
    const auto found = described.find(*key);
    if (found == described.end()) {
      refuse_file(what, "the storage '{}' belongs to no tensor that can be read, and its size is unknown", *key);
    }
    const auto& storage = *found->second;
    int64_t num_elements = 0, num_bytes = 0;
    if (file.size() - position < sizeof num_elements) refuse_file(what, "truncated before the storage '{}'", *key);
    std::memcpy(&num_elements, file.data() + position, sizeof num_elements);
    position += sizeof num_elements;
    if (num_elements != storage.num_elements) {
      refuse_file(what, "the storage '{}' has {} elements, and the pickle says {}", *key, num_elements,
                  storage.num_elements);
    }
    const auto item_bytes = static_cast<int64_t>(c10::elementSize(pt_dtype(storage.dtype).value()));
    if (__builtin_mul_overflow(num_elements, item_bytes, &num_bytes) ||
        static_cast<uint64_t>(num_bytes) > file.size() - position) {
      refuse_file(what, "truncated: the storage '{}' has {} elements of {}", *key, num_elements, storage.dtype);
    }
    const ZipEntry bytes{
        .begin_byte = static_cast<int64_t>(position), .num_bytes = num_bytes, .content_bytes = num_bytes};
    if (!layout.storages.emplace(*key, PtLayout::Part{bytes, false}).second) {
      refuse_file(what, "the storage '{}' is there twice", *key);
    }
    position += static_cast<size_t>(num_bytes);
  }
  return layout;
}

}  // namespace

PtLayout open_pt(const TensorMapping& mapping, const std::string& what) {
  const auto file = mapping.bytes();
  if (has_magic_number(file)) return open_old_layout(file, what);
  constexpr size_t kTarMark = 257;
  if (file.size() > 512 && text_of_bytes(file).substr(kTarMark, 5) == "ustar") {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{}: a tar file, which torch.save wrote until 2017; if you trust its author, because this executes what "
        "is in it, convert it in Python: "
        "torch.save(torch.load('OLD.pt', map_location='cpu', weights_only=False), 'NEW.pt')",
        what);
  }
  return open_archive(file, what);
}

c10::Storage load_storage(const TensorMapping& mapping, const PtLayout::Part& part, const std::string& name,
                          const std::string& what) {
  const auto& entry = part.entry;
  if (!entry.is_stored()) {
    const auto copy = at::empty({entry.content_bytes}, at::kByte);
    const auto size = static_cast<size_t>(entry.content_bytes);
    read_zip_content(mapping.bytes(), entry, name, what, {static_cast<std::byte*>(copy.data_ptr()), size});
    return copy.storage();
  }
  if (part.has_crc) zip_content(mapping.bytes(), entry, name, what);
  constexpr int64_t kAlignment = 16;  // enough for the widest dtype, because several dtypes may view one storage
  return mapping.storage(entry.begin_byte, entry.num_bytes, kAlignment);
}

}  // namespace yoke::train
