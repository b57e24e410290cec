// yoke/train/format/detail/pt_layout.h -- the two layouts of `.pt` files: torch 1.6's zip archive, and what was before.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/format/detail/pickle.h"
#include "yoke/train/format/detail/zip_file.h"
#include "yoke/train/format/tensor_mapping.h"

namespace yoke::train {

/// The parts of an opened file. REQUIRES: the file stays mapped, because texts of an old file's pickle are views of it.
struct PtLayout {
  struct Part {
    ZipEntry entry;
    bool has_crc = true;
  };
  Pickle pickle;
  std::map<std::string, Part, std::less<>> storages;  ///< By key.
  std::vector<std::byte> pickle_bytes;                ///< In an archive, the bytes that `pickle` refers to.
  std::string_view noun, folder;                      ///< For errors: "entry" and "data/", or "storage" and "".

  /// "data/0", as errors say it.
  std::string name_of(std::string_view key) const { return std::string(folder) + std::string(key); }
};

/// Reads the pickle and the places of all storages. Errors: as read_pt.
PtLayout open_pt(const TensorMapping& mapping, const std::string& what);

/// Returns the bytes of a storage of the file, after checking their CRC-32 if they have one: a view of the file's
/// pages, or a copy if they are compressed, or not aligned for every dtype.
c10::Storage load_storage(const TensorMapping& mapping, const PtLayout::Part& part, const std::string& name,
                          const std::string& what);

}  // namespace yoke::train
