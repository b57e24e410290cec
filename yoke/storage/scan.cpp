#include "yoke/storage/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::storage {
namespace {

constexpr int64_t kBlockBytes = 512;  // of st_blocks, on all file systems

struct Folder {
  Folder* parent = nullptr;
  std::string name;                     ///< The whole path for the root.
  std::shared_ptr<UniqueFd> parent_fd;  ///< The parent's descriptor; null once this folder has been opened.
  Use use;
  int64_t largest_child = 0;  ///< The bytes of the largest folder in it.
};

std::string path_of(const Folder& folder) {
  std::vector<const Folder*> chain;
  for (const auto* at = &folder; at != nullptr; at = at->parent) chain.push_back(at);
  std::string path = chain.back()->name;
  for (auto at = chain.rbegin() + 1; at != chain.rend(); ++at) {
    if (!path.ends_with('/')) path += '/';
    path += (*at)->name;
  }
  return path;
}

/// The inodes with several names that have been counted.
class LinkedFiles {
 public:
  bool insert(uint64_t inode) {
    auto& shard = shards_[inode % shards_.size()];
    const std::lock_guard lock(shard.mutex);
    return shard.inodes.insert(inode).second;
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_set<uint64_t> inodes;
  };
  std::array<Shard, 16> shards_;
};

struct alignas(64) Counter {  // on a cache line of its own, because each thread writes one all the time
  std::atomic<int64_t> bytes = 0, files = 0;
};

/// What one thread has found.
struct Findings {
  Counter counter;
  int64_t num_folders = 0;
  std::unordered_map<int64_t, Use> users;
  std::vector<UnreadablePath> unreadable;
  std::vector<std::string> not_crossed;
};

}  // namespace

struct Scan::State {
  explicit State(const ScanOptions& of) : options(of), findings(static_cast<size_t>(of.num_threads)) {
    for (const auto& mount : options.mounts) {
      if (mount.point != options.root && is_within(mount.point, options.root)) mount_points.insert(mount.point);
    }
  }

  void work(Findings& own);
  void scan_folder(Folder& folder, Findings& own);
  void read_entries(Folder& folder, const std::shared_ptr<UniqueFd>& fd, Findings& own, std::vector<Folder>& children);
  void count(Folder& folder, const struct stat& status, Findings& own, bool is_folder);

  ScanOptions options;
  std::set<std::string> mount_points;
  dev_t device = 0;
  LinkedFiles linked;

  std::mutex mutex;
  std::condition_variable news;
  std::deque<Folder> folders;    ///< All that were found; a folder precedes those in it.
  std::vector<Folder*> pending;  ///< The last one is next, so few parents are open at a time.
  int num_busy = 0;
  bool is_cancelled = false;
  bool has_ended() const { return is_cancelled || (pending.empty() && num_busy == 0); }

  std::vector<Findings> findings;  ///< One for each thread.
  std::vector<std::thread> threads;
};

void Scan::State::count(Folder& folder, const struct stat& status, Findings& own, bool is_folder) {
  if (!is_folder && status.st_nlink > 1 && !linked.insert(status.st_ino)) return;
  const int64_t bytes = int64_t{status.st_blocks} * kBlockBytes;
  auto& user = own.users[int64_t{status.st_uid}];
  folder.use.bytes += bytes;
  user.bytes += bytes;
  own.counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (is_folder) return;
  ++folder.use.files;
  ++user.files;
  own.counter.files.fetch_add(1, std::memory_order_relaxed);
}

void Scan::State::read_entries(Folder& folder, const std::shared_ptr<UniqueFd>& fd, Findings& own,
                               std::vector<Folder>& children) {
  alignas(dirent64) char buffer[1 << 16];
  for (;;) {
    const long size = syscall(SYS_getdents64, fd->value(), buffer, sizeof buffer);
    if (size < 0) own.unreadable.push_back({path_of(folder), std::strerror(errno)});
    if (size <= 0) return;
    for (long at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const char* const name = entry->d_name;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      struct stat status {};
      // A folder is looked at only when it is opened, since it may be the point of a mount that does not answer.
      bool is_folder = entry->d_type == DT_DIR;
      if (!is_folder) {
        if (fstatat(fd->value(), name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
          if (errno != ENOENT) own.unreadable.push_back({path_of(folder) + "/" + name, std::strerror(errno)});
          continue;  // ENOENT: it was removed meanwhile
        }
        is_folder = S_ISDIR(status.st_mode);  // on file systems that do not tell the type with the name
      }
      if (is_folder) {
        children.push_back({&folder, name, fd});
      } else {
        count(folder, status, own, false);
      }
    }
  }
}

void Scan::State::scan_folder(Folder& folder, Findings& own) {
  if (!mount_points.empty() && folder.parent != nullptr) {
    if (auto path = path_of(folder); mount_points.contains(path)) {
      own.not_crossed.push_back(std::move(path));
      folder.parent_fd.reset();
      return;
    }
  }
  const int at = folder.parent_fd ? folder.parent_fd->value() : AT_FDCWD;
  auto fd =
      std::make_shared<UniqueFd>(openat(at, folder.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int error_number = errno;
  struct stat status {};
  const bool has_status =
      *fd ? fstat(fd->value(), &status) == 0 : fstatat(at, folder.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  folder.parent_fd.reset();
  if (folder.parent == nullptr) device = status.st_dev;  // before other threads have work
  if (has_status && status.st_dev != device) {
    own.not_crossed.push_back(path_of(folder));
    return;
  }
  if (!*fd && error_number == ENOENT && folder.parent != nullptr) return;  // it was removed meanwhile
  ++own.num_folders;
  if (has_status) count(folder, status, own, true);
  if (!*fd) {
    own.unreadable.push_back({path_of(folder), std::strerror(error_number)});
    return;
  }
  std::vector<Folder> children;
  read_entries(folder, fd, own, children);
  if (children.empty()) return;
  fd.reset();
  const std::lock_guard lock(mutex);
  for (auto& child : children) pending.push_back(&folders.emplace_back(std::move(child)));
  news.notify_all();
}

void Scan::State::work(Findings& own) {
  std::unique_lock lock(mutex);
  for (;;) {
    news.wait(lock, [&] { return !pending.empty() || has_ended(); });
    if (has_ended()) break;
    auto* const folder = pending.back();
    pending.pop_back();
    ++num_busy;
    lock.unlock();
    scan_folder(*folder, own);
    lock.lock();
    --num_busy;
  }
  news.notify_all();
}

Scan::Scan(const ScanOptions& options) {
  auto copy = options;
  if (copy.num_threads == 0) copy.num_threads = std::max(4, 2 * static_cast<int>(std::thread::hardware_concurrency()));
  state_ = std::make_unique<State>(copy);
  raise_file_limit();
  state_->pending.push_back(&state_->folders.emplace_back(Folder{nullptr, copy.root, nullptr}));
  for (auto& own : state_->findings) state_->threads.emplace_back([this, &own] { state_->work(own); });
}

Scan::~Scan() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_cancelled = true;
    state_->news.notify_all();
  }
  for (auto& thread : state_->threads) thread.join();
}

bool Scan::wait_while_it_counts(Seconds patience, const std::function<void(const Use&)>& on_wait) {
  const auto has_ended = [&] {
    std::unique_lock lock(state_->mutex);
    return state_->news.wait_for(lock, std::chrono::milliseconds(100), [&] { return state_->has_ended(); });
  };
  Use before;
  auto changed = std::chrono::steady_clock::now();
  while (!has_ended()) {
    const auto use = counted();
    on_wait(use);
    const auto now = std::chrono::steady_clock::now();
    if (use != before) changed = now;
    before = use;
    if (now - changed >= patience) return false;
  }
  return true;
}

Use Scan::counted() const {
  Use sum;
  for (const auto& own : state_->findings) {
    sum.bytes += own.counter.bytes.load(std::memory_order_relaxed);
    sum.files += own.counter.files.load(std::memory_order_relaxed);
  }
  return sum;
}

Usage Scan::result() {
  for (auto& thread : state_->threads) thread.join();
  state_->threads.clear();
  Usage usage;
  for (const auto& own : state_->findings) {
    usage.num_folders += own.num_folders;
    for (const auto& [uid, use] : own.users) {
      usage.users[uid].bytes += use.bytes;
      usage.users[uid].files += use.files;
    }
    usage.unreadable.insert(usage.unreadable.end(), own.unreadable.begin(), own.unreadable.end());
    usage.not_crossed.insert(usage.not_crossed.end(), own.not_crossed.begin(), own.not_crossed.end());
  }
  std::ranges::sort(usage.not_crossed);
  std::ranges::sort(usage.unreadable, [](const UnreadablePath& a, const UnreadablePath& b) { return a.path < b.path; });
  auto& folders = state_->folders;
  std::vector<const Folder*> candidates;
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    if (auto* const parent = folder->parent) {
      parent->use.bytes += folder->use.bytes;
      parent->use.files += folder->use.files;
      parent->largest_child = std::max(parent->largest_child, folder->use.bytes);
      const bool is_explained = folder->largest_child > 0 && folder->largest_child >= folder->use.bytes / 10 * 8;
      if (!is_explained) candidates.push_back(&*folder);
    }
  }
  usage.total = folders.front().use;
  const auto count =
      std::min(candidates.size(), static_cast<size_t>(std::max<int64_t>(0, state_->options.num_largest)));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    [](const Folder* a, const Folder* b) {
                      return a->use.bytes != b->use.bytes ? a->use.bytes > b->use.bytes : path_of(*a) < path_of(*b);
                    });
  for (size_t i = 0; i < count; ++i) usage.largest.push_back({path_of(*candidates[i]), candidates[i]->use});
  return usage;
}

}  // namespace yoke::storage
