// yoke/storage/scan.h -- what fills a folder: a parallel scan of all files below it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/storage/in_children.h"
#include "yoke/storage/mount_table.h"

namespace yoke::storage {

struct Use {
  int64_t bytes = 0;  ///< On the disk, as du counts: a file with holes needs less than its length.
  int64_t files = 0;  ///< All entries except folders.

  bool operator==(const Use&) const = default;
};

struct FolderUse {
  std::string path;
  Use use;  ///< With all folders below.
};

struct UnreadablePath {
  std::string path;
  std::string reason;
};

/// Paths may have any bytes: apply printable() before they reach a terminal.
struct Usage {
  Use total;
  int64_t num_folders = 0;
  std::map<int64_t, Use> users;            ///< By the owner of each file and folder.
  std::vector<FolderUse> largest;          ///< See ScanOptions::num_largest.
  std::vector<UnreadablePath> unreadable;  ///< What is in them is not counted.
  std::vector<std::string> not_crossed;    ///< Folders with other file systems.
};

struct ScanOptions {
  std::string root;           ///< An absolute path without links.
  std::vector<Mount> mounts;  ///< Mounts below the root are left out without being looked at.
  int num_threads = 0;        ///< 0: twice the processors, at least 4.
  /// How many of the largest folders are listed. A folder is left out if one folder in it has 80 % of its bytes,
  /// because that one says more.
  int64_t num_largest = 20;
};

/// Counts a file with several names once, follows no symbolic links, and stays on the file system of the root.
class Scan {
 public:
  /// Starts the threads. Only they look at files, and may hang. A root that cannot be read is in Usage::unreadable.
  explicit Scan(const ScanOptions& options);
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;
  ~Scan();  ///< Waits for the threads, which end at their next folder.

  /// Waits until the scan has ended, or has counted nothing for so long as `patience`. Returns whether it has ended.
  /// `on_wait` is called ten times a second with what has been counted so far.
  bool wait_while_it_counts(Seconds patience, const std::function<void(const Use&)>& on_wait);
  /// REQUIRES: wait_while_it_counts() returned true.
  Usage result();

 private:
  Use counted() const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace yoke::storage
