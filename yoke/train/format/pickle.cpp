#include "yoke/train/format/detail/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/utf8.h"
#include "yoke/train/format/detail/pickle_globals.h"

namespace yoke::train {
namespace {

using Kind = PickleGlobal::Kind;

constexpr size_t kMaxPickledDims = 64;  // torch's own iterators allow no more than 64 either

/// Before torch 0.2 a tensor was made empty, and BUILD gave it its storage.
constexpr std::string_view kEmptyTensor = "a tensor without a storage";

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& what)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), what_(what) {}

  Pickle run() {
    if (read<uint8_t>() != 0x80) fail("it does not begin as a pickle of protocol 2 or later does");
    const int protocol = read<uint8_t>();
    if (protocol < 2 || protocol > 5) fail("a pickle of protocol {}, but only 2 to 5 are known", protocol);
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("it ends with {} objects on its stack", stack_.size());
    pickle_.root = stack_.back();
    pickle_.num_bytes = position_;
    return std::move(pickle_);
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kDataLoss, "{}: {} (at byte {} of the pickle)", what_,
                fmt::format(format, std::forward<Args>(args)...), position_);
  }

  size_t num_bytes_left() const { return text_.size() - position_; }

 private:
  // ---- Input

  std::string_view take(uint64_t size) {
    if (size > num_bytes_left()) fail("{} bytes are announced, but {} are left", size, num_bytes_left());
    const auto part = text_.substr(position_, size);
    position_ += size;
    return part;
  }

  template <typename T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view line() {
    const size_t end = text_.find('\n', position_);
    if (end == text_.npos) fail("a name does not end");
    const auto part = take(end - position_);
    take(1);
    return part;
  }

  /// A text that is not UTF-8 is one with half a surrogate pair, or bytes of Python 2.
  bool text(uint64_t size) {
    const auto part = take(size);
    return is_utf8(part) ? push(part) : opaque("a text that is not UTF-8");
  }

  bool integer(uint64_t size) {  // little-endian, two's complement
    const auto part = take(size);
    if (size > 8) return opaque("an integer of over 64 bits");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(part[i])) << (8 * i);
    if (size > 0 && size < 8 && (static_cast<uint8_t>(part.back()) & 0x80) != 0) value |= ~uint64_t{0} << (8 * size);
    return push(static_cast<int64_t>(value));
  }

  /// Python 2 writes an integer of over 32 bits as a line, and could write a bool as the line 00 or 01.
  bool integer_line() {
    const auto digits = line();
    if (digits == "00" || digits == "01") return push(digits == "01");
    int64_t value = 0;
    const auto* const end = digits.data() + digits.size();
    const auto [parsed, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc::result_out_of_range) return opaque("an integer of over 64 bits");
    if (error != std::errc() || parsed != end) fail("a line is not an integer");
    return push(value);
  }

  double big_endian_double() {
    const auto part = take(8);
    uint64_t bits = 0;
    for (const char byte : part) bits = bits << 8 | static_cast<uint8_t>(byte);
    return std::bit_cast<double>(bits);
  }

  // ---- Stack and memo

  bool push(PickleNode node) {
    if (pickle_.nodes.size() >= std::numeric_limits<PickleRef>::max()) fail("over 2^32 objects");
    stack_.push_back(static_cast<PickleRef>(pickle_.nodes.size()));
    pickle_.nodes.push_back(std::move(node));
    return true;
  }

  PickleRef pop() {
    if (stack_.size() <= floor()) fail("its stack is empty");
    const auto ref = stack_.back();
    stack_.pop_back();
    return ref;
  }

  PickleRef top() const {
    if (stack_.size() <= floor()) fail("its stack is empty");
    return stack_.back();
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  /// Removes and returns the objects above the last mark.
  std::vector<PickleRef> pop_mark() {
    if (marks_.empty()) fail("there is no mark on its stack");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleRef> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  bool tuple(size_t size) {
    std::vector<PickleRef> items(size);
    for (size_t i = size; i-- > 0;) items[i] = pop();
    return push(PickleTuple{std::move(items)});
  }

  bool get(uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("its memo has no {}", index);
    stack_.push_back(found->second);
    return true;
  }

  bool put(uint32_t index) {
    memo_[index] = top();
    return true;
  }

  template <typename T>
  T* get_if(PickleRef ref) {
    return std::get_if<T>(&pickle_.nodes[ref]);
  }

  template <typename T>
  const T& expect(PickleRef ref, std::string_view description) {
    const auto* value = get_if<T>(ref);
    if (const auto* opaque = get_if<PickleOpaque>(ref)) fail("{}", reason_of(*opaque));
    if (value == nullptr) fail("{} is expected here", description);
    return *value;
  }

  // ---- Objects

  bool global(std::string_view module, std::string_view name) {
    const auto found = find_global(module, name);
    if (!found) return push(PickleOpaque{.module = module, .name = name});
    return push(*found);
  }

  bool opaque(std::string_view what) { return push(PickleOpaque{.what = what}); }

  bool bytes(uint64_t size) {
    take(size);
    return opaque("bytes");
  }

  /// Replaces a class and its arguments on the stack by an object of this class.
  bool new_object(int num_arguments, std::string_view opcode) {
    if (num_arguments > 1) pop();
    const auto arguments = pop(), type_ref = pop();
    if (const auto* unknown = get_if<PickleOpaque>(type_ref)) return push(PickleOpaque(*unknown));
    const auto* type = get_if<PickleGlobal>(type_ref);
    if (type == nullptr || type->kind != Kind::kTensorClass) refuse_opcode(opcode);
    return call(type_ref, arguments);
  }

  [[noreturn]] void refuse_opcode(std::string_view name) const {
    fail("it has the opcode {}, which is not of tensors and plain data; nothing was executed", name);
  }

  void append(const std::vector<PickleRef>& items) {
    if (get_if<PickleOpaque>(top()) != nullptr) return;
    auto* list = get_if<PickleList>(top());
    if (list == nullptr) fail("items for a list, and there is none");
    list->items.insert(list->items.end(), items.begin(), items.end());
  }

  void set_items(const std::vector<PickleRef>& items) {
    if (get_if<PickleOpaque>(top()) != nullptr) return;
    auto* dict = get_if<PickleDict>(top());
    if (dict == nullptr) fail("items for a dictionary, and there is none");
    if (items.size() % 2 != 0) fail("a key without a value");
    for (size_t i = 0; i < items.size(); i += 2) dict->items.emplace_back(items[i], items[i + 1]);
  }

  /// Drops the attributes: in a state_dict these are versions of modules, and a tensor can have any. But an old tensor
  /// or parameter has its data there.
  bool build() {
    const auto state_ref = pop(), object = top();
    if (get_if<PickleTensor>(object) == nullptr && get_if<PickleDict>(object) == nullptr &&
        get_if<PickleOpaque>(object) == nullptr) {
      refuse_opcode("BUILD on an object that is not a dictionary");
    }
    const auto* made = get_if<PickleOpaque>(object);
    const auto* state = get_if<PickleTuple>(state_ref);
    if (made == nullptr || made->what != kEmptyTensor || state == nullptr) return true;
    const auto num_parts = state->items.size();
    if (num_parts != 4 && num_parts != 5) return true;
    const auto parts = state->items;  // storage, offset, size, stride; or five values that begin with a tensor
    auto data = parts[0];
    if (num_parts == 4 && get_if<PickleStorage>(data) != nullptr) {
      tensor(parts, std::nullopt, num_parts);
      data = pop();
    }
    if (const auto* found = get_if<PickleTensor>(data)) pickle_.nodes[object] = PickleTensor(*found);
    return true;
  }

  /// A storage; or the class of a module, which is stored with the file and the text of its source.
  bool persistent_object() {
    const auto id = expect<PickleTuple>(pop(), "a persistent id that describes a storage").items;
    const auto kind = id.empty() ? std::string_view() : expect<std::string_view>(id[0], "the text 'storage'");
    if (kind == "module" && id.size() == 4) {
      stack_.push_back(id[1]);
      return true;
    }
    if (id.size() != 5 && id.size() != 6) fail("a persistent id of {} parts, but a storage has 5 or 6", id.size());
    if (kind != "storage") fail("a persistent id of something other than a storage");
    if (const auto* unknown = get_if<PickleOpaque>(id[1]))
      return push(PickleOpaque(*unknown));  // from a quantized tensor
    const auto& type = expect<PickleGlobal>(id[1], "a storage class");
    if (type.kind != Kind::kStorage) fail("a storage class is expected here");
    PickleStorage storage{.dtype = type.dtype, .key = expect<std::string_view>(id[2], "a storage's key")};
    expect<std::string_view>(id[3], "a storage's location");
    storage.num_elements = storage.count = expect<int64_t>(id[4], "a storage's size");
    if (storage.num_elements < 0) fail("a storage of {} elements", storage.num_elements);
    if (id.size() == 6 && get_if<std::monostate>(id[5]) == nullptr) {
      const auto view = expect<PickleTuple>(id[5], "a part of a storage").items;
      if (view.size() != 3) fail("a part of a storage is described by {} values instead of 3", view.size());
      storage.first = expect<int64_t>(view[1], "the first element of a storage's part");
      storage.count = expect<int64_t>(view[2], "the size of a storage's part");
      if (storage.first < 0 || storage.count < 0 || storage.first > storage.num_elements ||
          storage.count > storage.num_elements - storage.first) {
        fail("{} elements from element {} on of a storage with {}", storage.count, storage.first, storage.num_elements);
      }
    }
    return push(storage);
  }

  std::vector<int64_t> integers(PickleRef ref, std::string_view description) {
    const auto& items = expect<PickleTuple>(ref, description).items;
    if (items.size() > kMaxPickledDims) fail("{} has {} parts", description, items.size());
    std::vector<int64_t> values;
    for (const auto item : items) values.push_back(expect<int64_t>(item, description));
    return values;
  }

  bool reduce() {
    const auto arguments = pop(), function = pop();
    return call(function, arguments);
  }

  /// Pushes what the function makes of its arguments. If a part of a tensor is unknown, the tensor is.
  bool call(PickleRef function_ref, PickleRef arguments_ref) {
    if (const auto* unknown = get_if<PickleOpaque>(function_ref)) return push(PickleOpaque(*unknown));
    const auto* function = get_if<PickleGlobal>(function_ref);
    if (function == nullptr) refuse_opcode("REDUCE of an object that is not a name");
    const auto arguments = expect<PickleTuple>(arguments_ref, "a tuple of arguments").items;
    const auto require = [&](size_t least, size_t most) {
      if (arguments.size() < least || arguments.size() > most) fail("a call with {} arguments", arguments.size());
    };
    const auto unknown_part = [&](size_t i) {
      return i < arguments.size() ? get_if<PickleOpaque>(arguments[i]) : nullptr;
    };
    switch (function->kind) {
      case Kind::kOrderedDict: require(0, 1); return ordered_dict(arguments);
      case Kind::kSize:
        require(1, 1);
        integers(arguments[0], "a size");
        stack_.push_back(arguments[0]);
        return true;
      case Kind::kDevice: require(1, 2); return device(arguments);
      case Kind::kParameter: require(3, 4); return parameter(arguments[0]);
      case Kind::kTensorClass:
        if (arguments.empty()) return opaque(kEmptyTensor);
        require(1, 2);
        return parameter(arguments[0]);
      case Kind::kTensorOfClass: {
        require(4, 4);
        if (const auto* type = unknown_part(1)) return push(PickleOpaque(*type));
        const auto& type = expect<PickleGlobal>(arguments[1], "a tensor's class");
        const auto& maker = expect<PickleGlobal>(arguments[0], "the function that makes a tensor");
        if (type.kind != Kind::kTensorClass) fail("a tensor's class is expected here");
        if (maker.kind == Kind::kTensorOfClass) fail("a tensor of a class is made of another one");
        return call(arguments[0], arguments[2]);
      }
      case Kind::kTensor:
        require(4, 7);
        if (const auto* storage = unknown_part(0)) return push(PickleOpaque(*storage));
        return tensor(arguments, std::nullopt, 6);
      case Kind::kTensorWithDtype: {
        require(7, 8);
        for (const size_t part : {size_t{0}, size_t{6}}) {
          if (const auto* unknown = unknown_part(part)) return push(PickleOpaque(*unknown));
        }
        const auto& dtype = expect<PickleGlobal>(arguments[6], "a dtype");
        if (dtype.kind != Kind::kDtype) fail("a dtype is expected here");
        return tensor(arguments, dtype.dtype, 7);
      }
      case Kind::kDtype:
      case Kind::kStorage: break;
    }
    refuse_opcode("REDUCE of a dtype or storage class");
  }

  /// Python 2 gives the class a list of pairs.
  bool ordered_dict(const std::vector<PickleRef>& arguments) {
    PickleDict dict;
    if (!arguments.empty()) {
      const auto& pairs = expect<PickleList>(arguments[0], "a dictionary's list of pairs").items;
      num_pairs_ += pairs.size();
      if (num_pairs_ > text_.size()) fail("its pickle says the same objects over and over");
      for (const auto ref : pairs) {
        const auto* list = get_if<PickleList>(ref);
        const auto& pair = list != nullptr ? list->items : expect<PickleTuple>(ref, "a pair of key and value").items;
        if (pair.size() != 2) fail("a pair of key and value has {} parts", pair.size());
        dict.items.emplace_back(pair[0], pair[1]);
      }
    }
    return push(std::move(dict));
  }

  bool parameter(PickleRef data) {
    if (get_if<PickleOpaque>(data) == nullptr) expect<PickleTensor>(data, "a parameter's tensor");
    stack_.push_back(data);
    return true;
  }

  bool device(const std::vector<PickleRef>& arguments) {
    const auto type = expect<std::string_view>(arguments[0], "a device");
    if (arguments.size() == 1) return push(type);
    const auto index = expect<int64_t>(arguments[1], "a device's number");
    if (index < 0 || index > 0x7F || type.find(':') != type.npos) fail("a device {}", index);
    return push(std::string_view(pickle_.texts.emplace_back(fmt::format("{}:{}", type, index))));
  }

  bool tensor(const std::vector<PickleRef>& arguments, std::optional<std::string_view> dtype, size_t marks) {
    PickleTensor tensor{.storage = arguments[0]};
    tensor.dtype = dtype.value_or(expect<PickleStorage>(arguments[0], "a tensor's storage").dtype);
    expect<PickleStorage>(arguments[0], "a tensor's storage");
    tensor.offset = expect<int64_t>(arguments[1], "a tensor's offset");
    tensor.sizes = integers(arguments[2], "a tensor's size");
    tensor.strides = integers(arguments[3], "a tensor's stride");
    if (arguments.size() > marks && get_if<std::monostate>(arguments[marks]) == nullptr) {
      const auto& items = expect<PickleDict>(arguments[marks], "a tensor's marks").items;
      if (items.size() > 2) fail("a tensor with {} marks", items.size());
      for (const auto& [key, value] : items) {
        const auto name = expect<std::string_view>(key, "the name of a tensor's mark");
        const bool is_set = expect<bool>(value, "a tensor's mark");
        if (name != "conj" && name != "neg") fail("a tensor with the mark '{}'", name.substr(0, 100));
        (name == "conj" ? tensor.conjugated : tensor.negated) = is_set;
      }
    }
    return push(std::move(tensor));
  }

  // ---- Opcodes

  bool step();

  std::string_view text_;
  const std::string& what_;
  size_t position_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  size_t num_pairs_ = 0;  // of all calls of OrderedDict, which could be given one list many times
  std::unordered_map<uint32_t, PickleRef> memo_;
  Pickle pickle_;
};

/// Source: CPython's Lib/pickletools.py, which lists what each opcode takes from the stack and leaves on it.
bool Machine::step() {
  const auto opcode = read<char>();
  switch (opcode) {
    case '.': return false;
    case 'N': return push(std::monostate());
    case '\x88': return push(true);
    case '\x89': return push(false);
    case 'K': return push(int64_t{read<uint8_t>()});
    case 'M': return push(int64_t{read<uint16_t>()});
    case 'J': return push(int64_t{read<int32_t>()});
    case '\x8a': return integer(read<uint8_t>());
    case '\x8b': return integer(read<uint32_t>());
    case 'G': return push(big_endian_double());
    case 'I': return integer_line();
    case 'U':
    case '\x8c': return text(read<uint8_t>());
    case 'T':
    case 'X': return text(read<uint32_t>());
    case '\x8d': return text(read<uint64_t>());
    case ')': return tuple(0);
    case '\x85': return tuple(1);
    case '\x86': return tuple(2);
    case '\x87': return tuple(3);
    case 't': return push(PickleTuple{pop_mark()});
    case ']': return push(PickleList{});
    case 'l': return push(PickleList{pop_mark()});
    case '}': return push(PickleDict{});
    case 'a': {
      const auto item = pop();
      append({item});
      return true;
    }
    case 'e': {
      const auto items = pop_mark();
      append(items);
      return true;
    }
    case 's': {
      const auto value = pop(), key = pop();
      set_items({key, value});
      return true;
    }
    case 'u': {
      const auto items = pop_mark();
      set_items(items);
      return true;
    }
    case '(': marks_.push_back(stack_.size()); return true;
    case '0': pop(); return true;
    case '1': pop_mark(); return true;
    case '2': stack_.push_back(top()); return true;
    case 'h': return get(read<uint8_t>());
    case 'j': return get(read<uint32_t>());
    case 'q': return put(read<uint8_t>());
    case 'r': return put(read<uint32_t>());
    case '\x94': return put(static_cast<uint32_t>(memo_.size()));
    case '\x95':
      read<uint64_t>();  // the size of a frame, which only readers with a buffer need
      return true;
    case 'c': {
      const auto module = line();
      return global(module, line());
    }
    case '\x93': {
      const auto name = expect<std::string_view>(pop(), "a name");
      return global(expect<std::string_view>(pop(), "a module's name"), name);
    }
    case 'Q': return persistent_object();
    case 'R': return reduce();
    case 'b': return build();
    case '\x81': return new_object(1, "NEWOBJ");
    case '\x92': return new_object(2, "NEWOBJ_EX");
    case '\x8f': return opaque("a set");
    case '\x90': {
      pop_mark();
      if (get_if<PickleOpaque>(top()) == nullptr) refuse_opcode("ADDITEMS on an object that is not a set");
      return true;
    }
    case '\x91': pop_mark(); return opaque("a set");
    case 'B': return bytes(read<uint32_t>());
    case 'C': return bytes(read<uint8_t>());
    case '\x8e':
    case '\x96': return bytes(read<uint64_t>());
    case 'i': refuse_opcode("INST");
    case 'o': pop_mark(); return opaque("an object of an old class of Python 2 (OBJ)");
    case '\x82':
    case '\x83':
    case '\x84': refuse_opcode("EXT");
    case 'P': refuse_opcode("PERSID");
    default: refuse_opcode(fmt::format("{:#04x}", static_cast<uint8_t>(opcode)));
  }
}

}  // namespace

std::string reason_of(const PickleOpaque& opaque) {
  const auto printable = [](std::string_view name) {
    std::string result(name.substr(0, 100));
    for (char& c : result) {
      if (c < 0x21 || c > 0x7E) c = '?';
    }
    return result;
  };
  const auto what = opaque.module.empty()
                        ? fmt::format("has {}", opaque.what)
                        : fmt::format("names {}.{}", printable(opaque.module), printable(opaque.name));
  return fmt::format("it {}, which is not of tensors and plain data; nothing was executed", what);
}

Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& what) {
  Machine machine(bytes, what);
  auto pickle = machine.run();
  if (machine.num_bytes_left() > 0) machine.fail("{} bytes follow its end", machine.num_bytes_left());
  return pickle;
}

Pickle parse_first_pickle(std::span<const std::byte> bytes, const std::string& what) {
  return Machine(bytes, what).run();
}

}  // namespace yoke::train
