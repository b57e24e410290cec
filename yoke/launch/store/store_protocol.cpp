#include "yoke/launch/store/store_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace yoke::launch {
namespace {

// torch's own limits, which keep a client from making the store reserve memory without end.
constexpr uint64_t kMaxKeyBytes = 8 << 10, kMaxValueBytes = 8 << 20, kMaxKeys = 128 << 10;
constexpr uint32_t kHello = 0x3C85F7CE;  // the first request of a client
constexpr char kReady = 0, kNotReady = 1, kStopWaiting = 0, kWaitCanceled = 1;

/// torch puts this before all keys of a default process group.
constexpr std::string_view kOfDefaultGroup = "/default_pg/";

struct Incomplete {};
struct Invalid {};
struct Full {};

/// What a key takes besides its text and its value, or a client that waits for a key.
constexpr int64_t kEntryBytes = 128;

int64_t size_of(const std::string& text) { return static_cast<int64_t>(text.size()); }

template <typename T>
std::string to_bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string to_bytes_with_length(std::string_view text) { return to_bytes<uint64_t>(text.size()).append(text); }

}  // namespace

/// Reads values from the beginning of a request. Throws Incomplete or Invalid.
class StoreProtocol::Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  template <typename T>
  T value() {
    T result;
    const auto bytes = take(sizeof result);
    std::memcpy(&result, bytes.data(), sizeof result);
    return result;
  }
  std::string text(uint64_t max_bytes) {
    const auto size = value<uint64_t>();
    if (size > max_bytes) throw Invalid();
    return std::string(take(size));
  }
  std::string key() { return text(kMaxKeyBytes); }
  std::vector<std::string> keys() {
    std::vector<std::string> result;
    for (auto left = num_keys(); left > 0; --left) result.push_back(key());
    return result;
  }
  uint64_t num_keys() {
    const auto result = value<uint64_t>();
    if (result > kMaxKeys) throw Invalid();
    return result;
  }
  size_t num_taken() const { return size_ - rest_.size(); }

 private:
  std::string_view take(uint64_t size) {
    if (rest_.size() < size) throw Incomplete();
    const auto result = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return result;
  }

  std::string_view rest_;
  size_t size_;
};

void StoreProtocol::connect(int client, std::string address) {
  clients_[client] = {.address = std::move(address), .unread = ""};
}

bool StoreProtocol::take(int id, std::string_view bytes) {
  auto& client = clients_.at(id);
  size_t done = 0;
  try {
    require_room(bytes.size());
    client.unread += bytes;
    used_bytes_ += static_cast<int64_t>(bytes.size());
    if (recognize(client)) {
      while (done < client.unread.size()) {
        Reader reader(std::string_view(client.unread).substr(done));
        auto request = parse(reader, client.form);
        done += reader.num_taken();
        obey(id, client, std::move(request));
        require_room(0);
      }
    }
  } catch (const Incomplete&) {  // the rest of the request is on its way
  } catch (const Invalid&) {
    return false;
  } catch (const Full&) {
    is_full_ = true;
    return false;
  }
  client.unread.erase(0, done);
  used_bytes_ -= static_cast<int64_t>(done);
  return true;
}

/// Finds out how the client speaks. Returns false if more bytes are needed.
bool StoreProtocol::recognize(Client& client) {
  if (client.form != Client::Form::kUnknown) return true;
  const auto hello = std::string(1, static_cast<char>(Query::kValidate)) + to_bytes(kHello);
  const auto size = std::min(hello.size(), client.unread.size());
  if (client.unread.compare(0, size, hello, 0, size) != 0) {
    client.form = Client::Form::kOfTorch2_0;  // clients up to torch 2.0 do not say hello
  } else if (size < hello.size()) {
    return false;
  } else {
    client.form = Client::Form::kPresent;
  }
  return true;
}

StoreProtocol::Request StoreProtocol::parse(Reader& reader, Client::Form form) {
  auto code = reader.value<uint8_t>();
  if (form == Client::Form::kOfTorch2_0) {  // its first query is kSet, and 7 is a query that needs a second connection
    if (code == 7) throw Invalid();
    if (code < 7) ++code;
  }
  if (code > static_cast<uint8_t>(Query::kLast)) throw Invalid();
  Request request{.query = Query{code}, .keys = {}, .values = {}};
  switch (request.query) {
    case Query::kValidate:
      if (reader.value<uint32_t>() != kHello) throw Invalid();
      break;
    case Query::kPing: request.number = reader.value<uint32_t>(); break;
    case Query::kSet:
    case Query::kAppend:
    case Query::kQueuePush:
      request.keys = {reader.key()};
      request.values = {reader.text(kMaxValueBytes)};
      break;
    case Query::kCompareSet:
      request.keys = {reader.key()};
      request.values.push_back(reader.text(kMaxValueBytes));
      request.values.push_back(reader.text(kMaxValueBytes));
      break;
    case Query::kGet:
    case Query::kDelete:
    case Query::kQueuePop:
    case Query::kQueueLength: request.keys = {reader.key()}; break;
    case Query::kAdd:
    case Query::kBarrier:
      request.keys = {reader.key()};
      request.number = reader.value<int64_t>();
      break;
    case Query::kCheck:
    case Query::kWait:
    case Query::kMultiGet: request.keys = reader.keys(); break;
    case Query::kMultiSet:
      for (auto left = reader.num_keys(); left > 0; --left) {
        request.keys.push_back(reader.key());
        request.values.push_back(reader.text(kMaxValueBytes));
      }
      break;
    case Query::kNumKeys:
    case Query::kCancelWait:
    case Query::kListKeys: break;
  }
  return request;
}

void StoreProtocol::obey(int id, Client& client, Request request) {
  auto& [query, keys, values, number] = request;
  for (auto& key : keys) key = own_key(client, key);
  switch (query) {
    case Query::kValidate: break;
    case Query::kPing:
      client.pid = number;
      reply(id, to_bytes(static_cast<uint32_t>(number)));
      break;
    case Query::kSet: set(keys[0], std::move(values[0])); break;
    case Query::kMultiSet:
      for (size_t i = 0; i < keys.size(); ++i) set(keys[i], std::move(values[i]));
      break;
    case Query::kAppend: {
      const auto found = values_.find(keys[0]);
      set(keys[0], found == values_.end() ? std::move(values[0]) : found->second + values[0]);
      break;
    }
    case Query::kCompareSet: {
      const auto found = values_.find(keys[0]);
      const bool is_expected = found == values_.end() ? values[0].empty() : found->second == values[0];
      if (is_expected) set(keys[0], values[1]);
      // For a key that does not exist, torch returns what the client expected.
      reply(id, to_bytes_with_length(is_expected ? values[1] : found == values_.end() ? values[0] : found->second));
      break;
    }
    case Query::kGet:
    case Query::kMultiGet: {  // of a key that does not exist, an empty value
      std::string bytes;
      for (const auto& key : keys) {
        const auto found = values_.find(key);
        bytes += to_bytes_with_length(found == values_.end() ? std::string_view() : found->second);
        require_room(bytes.size());
      }
      reply(id, std::move(bytes));
      break;
    }
    case Query::kAdd: {
      const auto sum = count(keys[0], number);
      reply(id, to_bytes(sum));
      wake(keys[0]);
      break;
    }
    case Query::kBarrier:
      if (count(keys[0], 1) >= number) {
        wake(keys[0]);
        reply(id, std::string(1, kStopWaiting));
      } else {
        begin_waiting(id, client, keys[0]);
      }
      break;
    case Query::kCheck:
      reply(id,
            std::string(1, std::ranges::all_of(keys, [&](const auto& key) { return has(key); }) ? kReady : kNotReady));
      break;
    case Query::kWait: wait(id, client, keys); break;
    case Query::kCancelWait:
      stop_waiting(id, client);
      reply(id, std::string(1, kWaitCanceled));
      break;
    case Query::kNumKeys: reply(id, to_bytes(static_cast<int64_t>(values_.size()))); break;
    case Query::kDelete: {
      const auto node = values_.extract(keys[0]);
      if (!node.empty()) used_bytes_ -= size_of(node.key()) + size_of(node.mapped()) + kEntryBytes;
      reply(id, to_bytes(int64_t{!node.empty()}));
      break;
    }
    case Query::kListKeys: {
      auto bytes = to_bytes(static_cast<int64_t>(values_.size()));
      for (const auto& [key, value] : values_) bytes += to_bytes_with_length(key);
      reply(id, std::move(bytes));
      break;
    }
    case Query::kQueuePush: {
      const auto bytes = size_of(keys[0]) + size_of(values[0]) + kEntryBytes;
      require_room(static_cast<uint64_t>(bytes));
      used_bytes_ += bytes;
      queues_[keys[0]].push_back(std::move(values[0]));
      wake_one(keys[0]);
      break;
    }
    case Query::kQueuePop: {
      const auto found = queues_.find(keys[0]);
      auto bytes = to_bytes(static_cast<int64_t>(found == queues_.end() ? 0 : found->second.size()));
      if (found != queues_.end()) {
        auto& queue = found->second;
        bytes += to_bytes_with_length(queue.front());
        used_bytes_ -= size_of(keys[0]) + size_of(queue.front()) + kEntryBytes;
        queue.pop_front();
        if (queue.empty()) queues_.erase(found);
      }
      reply(id, std::move(bytes));
      break;
    }
    case Query::kQueueLength: {
      const auto found = queues_.find(keys[0]);
      reply(id, to_bytes(static_cast<int64_t>(found == queues_.end() ? 0 : found->second.size())));
      break;
    }
  }
}

/// Returns the key under which the store keeps `key` for this client.
std::string StoreProtocol::own_key(Client& client, const std::string& key) {
  if (client.pid == 0 || key.find(kOfDefaultGroup) == key.npos) return key;
  if (!client.is_of_group) {
    client.is_of_group = true;
    auto& process = processes_[{client.address, client.pid}];
    ++process.num_open;
    client.generation = process.num_finished;
  }
  return client.generation == 0 ? key : fmt::format("group {}{}", client.generation, key);
}

void StoreProtocol::disconnect(int id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  auto& client = found->second;
  stop_waiting(id, client);
  used_bytes_ -= size_of(client.unread);
  if (client.is_of_group) {
    auto& process = processes_[{client.address, client.pid}];
    if (--process.num_open == 0) ++process.num_finished;
  }
  std::erase_if(replies_, [&](const Reply& reply) {
    if (reply.client == id) release(size_of(reply.bytes));
    return reply.client == id;
  });
  clients_.erase(found);
}

bool StoreProtocol::has(const std::string& key) const {
  if (values_.contains(key)) return true;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && !queue->second.empty();
}

/// Adds to a number, which the store keeps as text; a key that does not exist counts as 0.
int64_t StoreProtocol::count(const std::string& key, int64_t difference) {
  const auto found = values_.find(key);
  const auto value = found == values_.end() ? std::string() : found->second;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (!value.empty() && error != std::errc()) throw Invalid();
  if (__builtin_add_overflow(number, difference, &number)) throw Invalid();
  store(key, std::to_string(number));
  return number;
}

void StoreProtocol::store(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const auto more = size_of(value) - (found == values_.end() ? -size_of(key) - kEntryBytes : size_of(found->second));
  if (more > 0) require_room(static_cast<uint64_t>(more));
  used_bytes_ += more;
  if (found == values_.end()) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void StoreProtocol::set(const std::string& key, std::string value) {
  store(key, std::move(value));
  wake(key);
}

void StoreProtocol::reply(int id, std::string bytes) {
  used_bytes_ += size_of(bytes);
  replies_.push_back({id, std::move(bytes)});
}

void StoreProtocol::require_room(uint64_t bytes) const {
  if (used_bytes_ > limit_bytes_ || bytes > static_cast<uint64_t>(limit_bytes_ - used_bytes_)) throw Full();
}

void StoreProtocol::begin_waiting(int id, Client& client, const std::string& key) {
  waiting_[key].push_back(id);
  ++client.num_awaited;
  used_bytes_ += size_of(key) + kEntryBytes;
}

void StoreProtocol::wait(int id, Client& client, const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    if (has(key)) continue;
    begin_waiting(id, client, key);
  }
  if (client.num_awaited == 0) reply(id, std::string(1, kStopWaiting));
}

void StoreProtocol::wake(const std::string& key) {
  const auto node = waiting_.extract(key);
  if (node.empty()) return;
  used_bytes_ -= static_cast<int64_t>(node.mapped().size()) * (size_of(key) + kEntryBytes);
  for (const int id : node.mapped()) {
    if (--clients_.at(id).num_awaited == 0) reply(id, std::string(1, kStopWaiting));
  }
}

/// Like wake(), but only until one client has stopped waiting: one element of a queue is for one client.
void StoreProtocol::wake_one(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  auto& ids = found->second;
  bool is_done = false;
  while (!ids.empty() && !is_done) {
    const int id = ids.front();
    ids.erase(ids.begin());
    used_bytes_ -= size_of(key) + kEntryBytes;
    is_done = --clients_.at(id).num_awaited == 0;
    if (is_done) reply(id, std::string(1, kStopWaiting));
  }
  if (ids.empty()) waiting_.erase(found);
}

void StoreProtocol::stop_waiting(int id, Client& client) {
  if (std::exchange(client.num_awaited, 0) == 0) return;
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    const auto num_erased = static_cast<int64_t>(std::erase(entry->second, id));
    used_bytes_ -= num_erased * (size_of(entry->first) + kEntryBytes);
    entry = entry->second.empty() ? waiting_.erase(entry) : std::next(entry);
  }
}

}  // namespace yoke::launch
