// container-packages: prints the Pythons and the Python packages of the container in which it runs.
//
// It is linked statically and uses nothing of the image, so it also reads images without a Python that works. It prints
// a line for each Python, "python\tPATH", and for each package, "package\tNAME\tVERSION\tFOLDER".
//
//   container-packages [ROOT]
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr int kMaxDepth = 40;

struct Package {
  std::string name, version;
};

/// The first bytes of a file, which hold the name and the version; empty if it cannot be read.
std::string head_of(const std::string& path) {
  // O_NONBLOCK: the file may be a FIFO.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  std::string text(16384, '\0');
  const auto count = read(fd, text.data(), text.size());
  close(fd);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

/// Tabs and line feeds separate the output.
std::string field(std::string_view text) {
  while (!text.empty() && strchr(" \t\r", text.front()) != nullptr) text.remove_prefix(1);
  while (!text.empty() && strchr(" \t\r", text.back()) != nullptr) text.remove_suffix(1);
  std::string result(text);
  for (auto& c : result) {
    if (c == '\t' || c == '\n') c = ' ';
  }
  return result;
}

/// Reads "Name: " and "Version: " of the header, which ends with an empty line.
Package parse_metadata(std::string_view text) {
  Package package;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    if (line.empty() || line == "\r") break;
    if (line.starts_with("Name:")) package.name = field(line.substr(5));
    if (line.starts_with("Version:")) package.version = field(line.substr(8));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return package;
}

/// The package that `entry` of a folder of packages describes; without a name if it describes none.
Package package_of(const std::string& folder, std::string_view entry) {
  const auto path = folder + "/" + std::string(entry);
  Package package;
  std::string_view stem;
  if (entry.ends_with(".dist-info")) {
    package = parse_metadata(head_of(path + "/METADATA"));
    stem = entry.substr(0, entry.size() - strlen(".dist-info"));
  } else if (entry.ends_with(".egg-info")) {
    auto text = head_of(path + "/PKG-INFO");
    if (text.empty()) text = head_of(path);  // a file, of distutils
    package = parse_metadata(text);
    stem = entry.substr(0, entry.size() - strlen(".egg-info"));
  } else if (entry.ends_with(".egg")) {
    package = parse_metadata(head_of(path + "/EGG-INFO/PKG-INFO"));
    stem = entry.substr(0, entry.size() - strlen(".egg"));
  } else {
    return {};
  }
  const auto dash = stem.find('-');
  if (package.name.empty()) package.name = field(stem.substr(0, dash));
  if (package.version.empty() && dash != stem.npos) {
    const auto rest = stem.substr(dash + 1);
    package.version = field(rest.substr(0, rest.find("-py")));
  }
  return package;
}

bool is_python(std::string_view name) {
  if (name == "python" || name == "python3") return true;
  if (!name.starts_with("python3.")) return false;
  return name.find_first_not_of("0123456789", 8) == name.npos && name.size() > 8;
}

bool is_there(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

bool is_skipped(const std::string& folder, std::string_view name) {
  if (folder.empty() && (name == "proc" || name == "sys" || name == "dev")) return true;
  // Conda keeps what it has unpacked there, also versions that are not installed any more.
  return name == "pkgs" && is_there(folder + "/conda-meta");
}

/// `folder` has no slash at its end; the root is empty.
void walk(const std::string& root, const std::string& folder, int depth) {
  DIR* const dir = opendir((root + (folder.empty() ? "/" : folder)).c_str());
  if (dir == nullptr) return;
  const auto slash = folder.rfind('/');
  const auto own_name = slash == folder.npos ? std::string_view(folder) : std::string_view(folder).substr(slash + 1);
  const bool has_packages = own_name == "site-packages" || own_name == "dist-packages";
  const bool has_programs = own_name == "bin";
  while (const auto* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    const auto path = folder + "/" + entry->d_name;
    if (has_packages) {
      const auto package = package_of(root + folder, name);
      if (!package.name.empty()) {
        printf("package\t%s\t%s\t%s\n", package.name.c_str(), package.version.c_str(), field(folder).c_str());
      }
      continue;
    }
    if (has_programs && is_python(name)) printf("python\t%s\n", field(path).c_str());
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info;
      is_folder = lstat((root + path).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    }
    if (is_folder && depth < kMaxDepth && !is_skipped(root + folder, name)) walk(root, path, depth + 1);
  }
  closedir(dir);
}

}  // namespace

int main(int argc, char** argv) {
  std::string root = argc > 1 ? argv[1] : "";
  while (root.ends_with('/')) root.pop_back();
  walk(root, "", 0);
  return fflush(stdout) == 0 ? 0 : 1;
}
