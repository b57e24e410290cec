#include "yoke/dist/shared/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <new>
#include <thread>

#include "yoke/base/error.h"

namespace yoke::dist::shared {
namespace {

constexpr uint64_t kMagic = 0x796f6b652073686d;  // "yoke shm"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int64_t kPageBytes = 64 << 10;  // the largest of the processors that libtorch has

/// Raise it with each change of what ranks write into the file, or when. Ranks with different ones use Gloo.
constexpr uint32_t kVersion = 8;

/// Begins the file. The size of a RankState differs between C libraries, so it is a part of the agreement.
struct Head {
  uint64_t magic = kMagic;
  uint32_t version = kVersion, state_bytes = sizeof(RankState);
  Layout layout;
};

Offsets offsets_of(const Layout& layout) {
  Offsets at;
  int64_t end = sizeof(Head);
  at.states = round_up(end, kLineBytes);
  end = at.states + layout.num_ranks * static_cast<int64_t>(sizeof(RankState));
  const auto part_of = [&](int64_t num_places, int64_t bytes) {
    Part part{.begin = round_up(end, kPageBytes), .stride = round_up(bytes, kLineBytes)};
    part.of_rank = round_up(num_places * part.stride, kPageBytes);
    end = part.begin + layout.num_ranks * part.of_rank;
    return part;
  };
  at.slots = part_of(layout.num_slots, static_cast<int64_t>(sizeof(Slot)) + layout.slot_bytes);
  at.chunks = part_of(layout.num_chunks, layout.chunk_bytes);
  at.results = part_of(layout.num_chunks, lane_bytes(layout, layout.num_ranks));
  at.channels = part_of(layout.num_ranks, static_cast<int64_t>(sizeof(Channel)) + layout.channel_bytes);
  at.end = end;
  return at;
}

int64_t file_bytes(const Layout& layout) { return offsets_of(layout).end + layout.num_ranks * layout.arena_bytes; }

bool is_possible(const Layout& layout) {
  const auto is_in = [](int64_t value, int64_t most) { return value > 0 && value <= most; };
  return is_in(layout.num_ranks, kMostRanks) && is_in(layout.slot_bytes, 1 << 24) && is_in(layout.num_slots, 1 << 10) &&
         is_in(layout.chunk_bytes, 1 << 30) && is_in(layout.num_chunks, 1 << 10) &&
         is_in(layout.channel_bytes, 1 << 30) && layout.channel_bytes % kLineBytes == 0 &&
         lane_bytes(layout, layout.num_ranks) > 0 && layout.arena_bytes >= 0 && layout.arena_bytes <= kMostArenaBytes &&
         layout.arena_bytes % kPageBytes == 0;
}

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

bool owner_has_ended(const pthread_mutex_t& mutex) {
  const int word = __atomic_load_n(&mutex.__data.__lock, __ATOMIC_SEQ_CST);
  return (static_cast<uint32_t>(word) & FUTEX_OWNER_DIED) != 0;
}

}  // namespace

bool kernel_marks_ends() {
  static const bool does = [] {
    try {
      pthread_mutex_t mutex;
      make_robust(mutex);
      std::thread([&] { pthread_mutex_lock(&mutex); }).join();
      return owner_has_ended(mutex);
    } catch (const std::exception&) {  // no thread is left
      return false;
    }
  }();
  return does;
}

Segment::Segment(const Layout& layout, const UniqueFd& file) : layout_(layout), at_(offsets_of(layout)) {
  auto* const memory = mmap(nullptr, static_cast<size_t>(at_.end), PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
  if (memory == MAP_FAILED) throw system_error(errno, "mapping the memory that ranks share");
  memory_ = static_cast<std::byte*>(memory);
}

Segment::~Segment() { munmap(memory_, static_cast<size_t>(at_.end)); }

std::shared_ptr<Segment> Segment::create(const Layout& layout, UniqueFd& file) {
  if (!is_possible(layout)) throw Error(ErrorCode::kInternal, "shared memory: a layout with sizes that cannot be");
  rlimit limit{};  // the kernel ends a process that makes a larger file
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < static_cast<rlim_t>(file_bytes(layout))) {
    throw system_error(EFBIG, "making the memory that ranks share");
  }
  file = UniqueFd(memfd_create("yoke-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw system_error(errno, "making the memory that ranks share");
  if (ftruncate(file.value(), file_bytes(layout)) != 0 || fcntl(file.value(), F_ADD_SEALS, kSeals) != 0) {
    throw system_error(errno, "giving the memory that ranks share its size");
  }
  std::shared_ptr<Segment> segment(new Segment(layout, file));
  for (int64_t rank = 0; rank < layout.num_ranks; ++rank) {
    make_robust((new (&segment->state(rank)) RankState)->alive);
  }
  new (segment->memory_) Head{.layout = layout};  // slots are zero, as a new file is
  return segment;
}

std::shared_ptr<Segment> Segment::map(const UniqueFd& file) {
  Head head;
  struct stat status = {};
  const bool has_head = pread(file.value(), &head, sizeof head, 0) == static_cast<ssize_t>(sizeof head);
  if (has_head && head.magic == kMagic && (head.version != kVersion || head.state_bytes != sizeof(RankState))) {
    throw Error(ErrorCode::kFailedPrecondition, "another rank has another version of yoke, or of the C library");
  }
  if (!has_head || head.magic != kMagic || !is_possible(head.layout) || fstat(file.value(), &status) != 0 ||
      status.st_size != file_bytes(head.layout) ||
      (fcntl(file.value(), F_GET_SEALS) & kSeals) != kSeals) {  // a file that shrinks would end this process by SIGBUS
    throw Error(ErrorCode::kDataLoss, "the descriptor from another rank is not memory that ranks share");
  }
  return std::shared_ptr<Segment>(new Segment(head.layout, file));
}

std::shared_ptr<Arena> Segment::arena_of(const UniqueFd& file, int64_t rank) const {
  if (layout_.arena_bytes == 0) return nullptr;
  return std::make_shared<Arena>(
      file, Arena::Options{.begin = at_.end + rank * layout_.arena_bytes, .bytes = layout_.arena_bytes});
}

std::byte* Segment::chunk(int64_t rank, uint64_t round) const {
  return memory_ + at_.chunks.at(rank, static_cast<int64_t>(round) % layout_.num_chunks);
}

std::byte* Segment::result(int64_t rank, uint64_t round) const {
  return memory_ + at_.results.at(rank, static_cast<int64_t>(round) % layout_.num_chunks);
}

Channel& Segment::channel(int64_t from, int64_t to) const {
  return *reinterpret_cast<Channel*>(memory_ + at_.channels.at(from, to));
}

void Segment::touch_slots(int64_t rank) const {
  for (int64_t place = 0; place < layout_.num_slots; ++place) {
    slot(rank, static_cast<uint64_t>(place)).sequence.fetch_add(0, std::memory_order_relaxed);
  }
}

void Segment::mark_alive(int64_t rank) const {
  if (const int error = pthread_mutex_lock(&state(rank).alive); error != 0) {
    throw system_error(error, "taking a rank's place in shared memory");
  }
}

bool Segment::has_ended(int64_t rank) const {
  const auto& other = state(rank);
  return owner_has_ended(other.alive) || other.is_cut_off.load(std::memory_order_seq_cst) != 0;
}

std::byte* Segment::place_at(uint64_t offset, uint64_t bytes) const {
  const auto size = static_cast<uint64_t>(at_.end);
  return offset < sizeof(Head) || offset > size || bytes > size - offset ? nullptr : memory_ + offset;
}

std::span<const std::byte> Segment::head() const { return {memory_, sizeof(Head)}; }

}  // namespace yoke::dist::shared
