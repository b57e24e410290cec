// yoke/launch/store/store_protocol.h -- the ranks' TCPStore: its data, and the protocol by which torch's clients use
// it. Pure: bytes of clients go in, and replies come out.
//
// Source  torch/csrc/distributed/c10d/TCPStoreBackend.hpp and TCPStoreLibUvBackend.cpp, of torch 2.15.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace yoke::launch {

/// Keys and values, and the clients that wait for keys.
///
/// A Python program may leave its default process group and make a new one. torch then uses the same keys again, and
/// would read values of the earlier group. So each process's n-th default group has keys of its own. Its n-th group
/// begins with its first use of such a key after all of its connections that used one were closed. A process is known
/// by its address and its pid, which torch 2.11 sends; clients that do not send it share the keys of the first group.
class StoreProtocol {
 public:
  struct Reply {
    int client = 0;
    std::string bytes;
  };

  /// `limit_bytes`: of all that is kept for clients: keys and values, requests whose rest is not there yet, keys that
  /// are waited for, and replies.
  explicit StoreProtocol(int64_t limit_bytes = INT64_MAX) : limit_bytes_(limit_bytes) {}

  /// `address`: the address of the client's host. REQUIRES: `client` is not connected.
  void connect(int client, std::string address);
  /// Takes bytes of a client, in arbitrary portions. Returns false if the client does not keep to the protocol; then it
  /// must be disconnected. The same holds for one whose request does not fit into the limit.
  bool take(int client, std::string_view bytes);
  void disconnect(int client);

  /// Whether a request did not fit.
  bool is_full() const { return is_full_; }

  /// Returns the replies since the last call, in order. They count as kept until release() is called.
  std::vector<Reply> take_replies() { return std::exchange(replies_, {}); }
  /// Bytes of replies were sent, or are no longer needed.
  void release(int64_t bytes) { used_bytes_ -= bytes; }

 private:
  /// The values are those of the protocol.
  enum class Query : uint8_t {
    kValidate,
    kSet,
    kCompareSet,
    kGet,
    kAdd,
    kCheck,
    kWait,
    kNumKeys,
    kDelete,
    kAppend,
    kMultiGet,
    kMultiSet,
    kCancelWait,
    kPing,
    kQueuePush,
    kQueuePop,
    kQueueLength,
    kListKeys,
    kBarrier,
    kLast = kBarrier,
  };
  struct Request {
    Query query = Query::kValidate;
    std::vector<std::string> keys, values;
    int64_t number = 0;
  };
  struct Client {
    std::string address;
    std::string unread;  ///< The beginning of a request.
    enum class Form { kUnknown, kPresent, kOfTorch2_0 } form = Form::kUnknown;
    int64_t pid = 0;           ///< 0: unknown.
    int64_t generation = 0;    ///< The number of the default group that this connection serves.
    bool is_of_group = false;  ///< Whether it has used a key of a default group.
    int64_t num_awaited = 0;
  };
  /// What is known about the default groups of a process.
  struct Process {
    int64_t num_open = 0;      ///< Its connections that have used a key of a default group.
    int64_t num_finished = 0;  ///< The groups that it has left.
  };
  using ProcessName = std::pair<std::string, int64_t>;
  class Reader;

  bool recognize(Client& client);
  static Request parse(Reader& reader, Client::Form form);
  void obey(int id, Client& client, Request request);
  std::string own_key(Client& client, const std::string& key);

  bool has(const std::string& key) const;
  int64_t count(const std::string& key, int64_t difference);
  void store(const std::string& key, std::string value);
  void set(const std::string& key, std::string value);
  void wait(int id, Client& client, const std::vector<std::string>& keys);
  void wake(const std::string& key);
  void wake_one(const std::string& key);
  void stop_waiting(int id, Client& client);
  void reply(int id, std::string bytes);
  void require_room(uint64_t bytes) const;
  void begin_waiting(int id, Client& client, const std::string& key);

  const int64_t limit_bytes_;
  int64_t used_bytes_ = 0;
  bool is_full_ = false;
  std::unordered_map<int, Client> clients_;
  std::map<ProcessName, Process> processes_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::vector<int>> waiting_;  ///< The clients that wait for a key.
  std::vector<Reply> replies_;
};

}  // namespace yoke::launch
