#include "yoke/train/image/detail/scan_classes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::train::detail {
namespace {

struct FolderEntries {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};
using FolderId = std::pair<dev_t, ino_t>;

bool is_folder(const dirent& entry, int folder) {
  if (entry.d_type == DT_DIR) return true;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
  struct stat status {};
  // A dangling link counts as a file. Reading this file later reports the error.
  return fstatat(folder, entry.d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

FolderEntries read_folder(const std::string& path, FolderId& id) {
  const auto close = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(opendir(path.c_str()), close);
  struct stat status {};
  if (!dir || fstat(dirfd(dir.get()), &status) != 0) throw system_error(errno, path);
  id = {status.st_dev, status.st_ino};
  FolderEntries entries;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    (is_folder(*entry, dirfd(dir.get())) ? entries.folders : entries.files).emplace_back(name);
  }
  if (errno != 0) throw system_error(errno, path);
  std::sort(entries.files.begin(), entries.files.end());
  std::sort(entries.folders.begin(), entries.folders.end());
  return entries;
}

enum class Kind { kImage, kUnsupportedImage, kOther };

Kind kind_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return Kind::kOther;
  std::string extension(name.substr(dot + 1));
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  constexpr std::array<std::string_view, 3> kSupported{"jpg", "jpeg", "png"};
  constexpr std::array<std::string_view, 6> kUnsupported{"ppm", "bmp", "pgm", "tif", "tiff", "webp"};
  if (std::find(kSupported.begin(), kSupported.end(), extension) != kSupported.end()) return Kind::kImage;
  if (std::find(kUnsupported.begin(), kUnsupported.end(), extension) != kUnsupported.end()) {
    return Kind::kUnsupportedImage;
  }
  return Kind::kOther;
}

class ClassScan {
 public:
  ClassScan(const std::string& root, ClassFiles& result) : root_(root), result_(result) {}

  void add(const std::string& name) {
    folders_.clear();
    collect(name);
    // Sorts folders by their whole paths, in which "a-b" is between "a" and "a/b".
    std::sort(folders_.begin(), folders_.end());
    for (const auto& [folder, files] : folders_) {
      for (const auto& file : files) {
        result_.path_begins.push_back(result_.paths.size());
        result_.paths.append(folder).append("/").append(file);
      }
    }
  }

 private:
  void collect(const std::string& folder) {
    FolderId id;
    auto entries = read_folder(root_ + "/" + folder, id);
    if (std::find(parents_.begin(), parents_.end(), id) != parents_.end()) {
      throw Error(ErrorCode::kInvalidArgument, "{}/{}: this link leads to a folder that contains it", printable(root_),
                  printable(folder));
    }
    const auto not_image = [&](const std::string& name) {
      const Kind kind = kind_of(name);
      if (kind == Kind::kUnsupportedImage) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}/{}/{}: only JPEG and PNG images can be decoded; convert it, or move it out of the folder",
                    printable(root_), printable(folder), printable(name));
      }
      return kind == Kind::kOther;
    };
    result_.num_ignored += static_cast<int64_t>(std::erase_if(entries.files, not_image));
    folders_.emplace_back(folder, std::move(entries.files));
    parents_.push_back(id);
    for (const auto& name : entries.folders) collect(folder + "/" + name);
    parents_.pop_back();
  }

  const std::string& root_;
  ClassFiles& result_;
  std::vector<FolderId> parents_;
  std::vector<std::pair<std::string, std::vector<std::string>>> folders_;  // folders of the class, with their images
};

}  // namespace

std::string_view ClassFiles::path(int64_t file) const {
  const auto i = static_cast<size_t>(file);
  return std::string_view(paths).substr(path_begins[i], path_begins[i + 1] - path_begins[i]);
}

int64_t ClassFiles::class_of(int64_t file) const {
  return std::upper_bound(class_ends.begin(), class_ends.end(), file) - class_ends.begin();
}

ClassFiles scan_classes(const std::string& root, bool allow_empty) {
  ClassFiles result;
  FolderId id;
  auto entries = read_folder(root, id);
  if (entries.folders.empty()) {
    throw Error(ErrorCode::kNotFound, "{}: expected a folder for each class, with its images; it contains no folder",
                printable(root));
  }
  result.num_ignored = static_cast<int64_t>(entries.files.size());
  ClassScan scan(root, result);
  for (auto& name : entries.folders) {
    const size_t before = result.path_begins.size();
    scan.add(name);
    if (result.path_begins.size() == before && !allow_empty) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{}/{}: this class has no JPEG or PNG image; remove the folder, or set "
                  "ImageFolderOptions::allow_empty_classes",
                  printable(root), printable(name));
    }
    result.class_ends.push_back(static_cast<int64_t>(result.path_begins.size()));
  }
  result.path_begins.push_back(result.paths.size());
  result.classes = std::move(entries.folders);
  return result;
}

}  // namespace yoke::train::detail
