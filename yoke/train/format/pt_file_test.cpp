#include "yoke/train/format/pt_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/detail/pt_dtypes.h"
#include "yoke/train/format/detail/zip_file.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;  // NOLINT(google-build-using-namespace): pickles contain zero bytes
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kRecorded = fs::path(test::reference("pt"));

/// The tensor's bytes in logical order.
std::string hex_of(const at::Tensor& tensor) {
  const auto dense = tensor.resolve_conj().resolve_neg().contiguous();
  std::string text;
  for (size_t i = 0; i < dense.nbytes(); ++i) {
    text += fmt::format("{:02x}", static_cast<const uint8_t*>(dense.data_ptr())[i]);
  }
  return text;
}

void expect_recorded(const at::Tensor& tensor, const json& expected, const std::string& place) {
  EXPECT_EQ(pt_dtype_name(tensor.scalar_type()), expected["dtype"].get<std::string>()) << place;
  EXPECT_EQ(tensor.sizes().vec(), expected["size"].get<std::vector<int64_t>>()) << place;
  EXPECT_EQ(hex_of(tensor), expected["hex"].get<std::string>()) << place;
}

/// Describes a value in the form of record_pt_files.py, and compares its tensors.
json described(const PtValue& value, const json& tensors, const std::string& place) {
  if (const auto* tensor = value.get_if<at::Tensor>()) {
    if (!tensors.contains(place)) return "an unknown tensor " + place;
    expect_recorded(*tensor, tensors[place], place);
    EXPECT_EQ(tensor->strides().vec(), tensors[place]["stride"].get<std::vector<int64_t>>()) << place;
    EXPECT_FALSE(tensor->requires_grad()) << place;
    return "tensor " + place;
  }
  const auto all = [&](const std::vector<PtValue>& values) {
    auto result = json::array();
    for (size_t i = 0; i < values.size(); ++i) {
      result.push_back(described(values[i], tensors, place + "/" + std::to_string(i)));
    }
    return result;
  };
  if (const auto* list = value.get_if<PtList>()) return all(list->values);
  if (const auto* tuple = value.get_if<PtTuple>()) return {{"tuple", all(tuple->values)}};
  if (const auto* dict = value.get_if<PtDict>()) {
    auto items = json::array();
    for (const auto& [key, inner] : dict->items) {
      auto name =
          key.get_if<std::string>() != nullptr ? *key.get_if<std::string>() : described(key, tensors, place).dump();
      if (const auto* tuple = key.get_if<PtTuple>()) {  // as Python's str()
        name = fmt::format("({}, '{}')", std::get<int64_t>(tuple->values[0]), std::get<std::string>(tuple->values[1]));
      }
      items.push_back(json::array({described(key, tensors, place), described(inner, tensors, place + "/" + name)}));
    }
    return {{"dict", items}};
  }
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* number = value.get_if<int64_t>()) return *number;
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* text = value.get_if<std::string>()) return *text;
  return nullptr;
}

class PtFileTest : public testing::Test {
 protected:
  PtFileTest() : record_(json::parse(read_file(kRecorded / "values.json"))) {}

  void expect_recorded_values(const PtValue& value, const std::string& name) const {
    const auto& expected = record_["files"][name];
    EXPECT_EQ(described(value, expected["tensors"], "").dump(), expected["value"].dump()) << name;
  }

  fs::path write(const std::string& bytes) const {
    replace_file(folder_ / "t.pt", [&](int fd) { write_all(fd, std::as_bytes(std::span(bytes)), "t"); });
    return folder_ / "t.pt";
  }

  /// Returns an archive like torch.save's, with this pickle and the entries in `more`.
  static std::string archive(const std::string& pickle, const std::map<std::string, std::string>& more = {}) {
    ZipWriter zip;
    std::string file;
    const auto add = [&](const std::string& name, const std::string& content) {
      file += zip.begin(name, std::ssize(content), zip_crc(std::as_bytes(std::span(content)))) + content;
    };
    add("a/data.pkl", pickle);
    for (const auto& [name, content] : more) add(name, content);
    return file + zip.end();
  }

  void expect_refused(const std::string& bytes, const std::string& reason) const {
    const auto path = write(bytes);
    try {
      read_pt(path);
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string() + ": "), HasSubstr(reason)));
    }
  }

  json record_;
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(PtFileTest, ReadsWhatPythonWrote) {
  for (const auto* name : {"dtypes", "shapes", "state_dict", "trainer"}) {
    expect_recorded_values(read_pt(kRecorded / (name + ".pt"s)), name);
  }
  expect_recorded_values(read_pt(kRecorded / "protocol5.pt"), "dtypes");
  expect_recorded_values(read_pt(kRecorded / "deflated.pt"), "shapes");        // made of shapes.pt by zip(1)
  expect_recorded_values(read_pt(kRecorded / "attributes.pt"), "attributes");  // tensors with attributes
  expect_recorded_values(read_pt(kRecorded / "legacy.pt"), "state_dict");      // the layout before torch 1.6
  expect_recorded_values(read_pt(kRecorded / "legacy4.pt"), "trainer");        // and with other protocols
}

TEST_F(PtFileTest, WhatItWritesItReads) {
  for (const auto* name : {"dtypes", "shapes", "state_dict", "trainer"}) {
    const auto value = read_pt(kRecorded / (name + ".pt"s));
    write_pt(folder_ / "t.pt", value);
    const auto bytes = read_file(folder_ / "t.pt");
    expect_recorded_values(read_pt(folder_ / "t.pt"), name);
    write_pt(folder_ / "t.pt", value);
    EXPECT_EQ(read_file(folder_ / "t.pt"), bytes) << "the same values give the same bytes";
  }
}

/// Returns a file of the layout before torch 1.6, as Python 2 wrote it. Storages are pairs of key and elements
/// (floats).
std::string old_layout(const std::string& pickle,
                       const std::vector<std::pair<std::string, std::vector<float>>>& storages) {
  std::string file = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}." + pickle;
  std::string keys, contents;
  for (const auto& [key, values] : storages) {
    const auto count = std::ssize(values);
    keys += 'U' + std::string(1, static_cast<char>(key.size())) + key;
    contents += std::string(reinterpret_cast<const char*>(&count), sizeof count) +
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return file + "\x80\x02](" + keys + "e." + contents;
}

/// The call that makes a vector of `size` floats of the storage `key`, which has `num_elements`.
std::string old_tensor(char key, char num_elements, const std::string& view, char offset, char size) {
  return "ctorch._utils\n_rebuild_tensor\n((U\x07storagectorch\nFloatStorage\nU\x01"s + key +
         "U\x03"
         "cpuK" +
         num_elements + view + "tQK" + offset + "K" + size + "\x85K\x01\x85tR";
}

TEST_F(PtFileTest, ReadsPartsOfStoragesOfOldFiles) {
  const auto pickle =
      "\x80\x02}(U\x01"
      "a"s +
      old_tensor('1', 6, "N", 0, 6) +
      "U\x01"
      "b"s +
      old_tensor('1', 6,
                 "(U\x01"
                 "9K\x02K\x03t",
                 1, 2) +
      "U\x01"
      "c"s +
      old_tensor('2', 1, "N", 0, 1) + "u.";
  const auto file = old_layout(pickle, {{"2", {7}}, {"1", {0, 1, 2, 3, 4, 5}}});
  const auto tensors = read_state_dict(write(file + "other bytes may follow, as torch.load permits"));
  EXPECT_TRUE(tensors.at("a").equal(at::arange(6, at::kFloat)));
  EXPECT_TRUE(tensors.at("b").equal(at::arange(3, 5, at::kFloat)));
  EXPECT_TRUE(tensors.at("c").equal(at::full({1}, 7, at::kFloat)));
  EXPECT_EQ(tensors.at("a").storage().unsafeGetStorageImpl(), tensors.at("b").storage().unsafeGetStorageImpl());
  for (size_t length = 1; length < file.size(); length += 9) expect_refused(file.substr(0, length), "");

  const auto one = [](const std::string& tensor) { return "\x80\x02" + tensor + "."; };
  const auto whole = one(old_tensor('1', 2, "N", 0, 2));
  EXPECT_EQ(std::get<at::Tensor>(read_pt(write(old_layout(whole, {{"1", {1, 2}}})))).numel(), 2);
  expect_refused(old_layout(whole, {}), "the storage '1' is missing");
  expect_refused(old_layout(whole, {{"1", {1}}}), "the storage '1' has 1 elements, and the pickle says 2");
  expect_refused(old_layout(whole, {{"1", {1, 2}}, {"1", {1, 2}}}), "the storage '1' is there twice");
  expect_refused(old_layout(whole, {{"1", {1, 2}}, {"2", {1}}}), "the storage '2' belongs to no tensor");
  expect_refused(old_layout(one(old_tensor('1', 2, "N", 1, 2)), {{"1", {1, 2}}}),
                 "does not fit in '1' with its 8 bytes");
  expect_refused(old_layout(one(old_tensor('1', 2,
                                           "(U\x01"
                                           "9K\x01K\x01t",
                                           0, 2)),
                            {{"1", {1, 2}}}),
                 "does not fit in '1' with its 4 bytes");
  const auto twice = "\x80\x02](" + old_tensor('1', 2, "N", 0, 2) + old_tensor('1', 1, "N", 0, 1) + "e.";
  expect_refused(old_layout(twice, {{"1", {1, 2}}}), "the storage '1' has 2 elements of float32, and elsewhere 1 of");
  auto version = old_layout(whole, {{"1", {1, 2}}});
  version[version.find("M\xe9\x03") + 1] = '\xea';
  expect_refused(version, "not of the version 1001");
  auto count = old_layout(whole, {{"1", {1, 2}}});
  count[count.size() - 9] = '\x7f';  // the most significant byte of the number of elements
  expect_refused(count, "elements, and the pickle says 2");
}

TEST_F(PtFileTest, ReadsArchivesThatOthersPacked) {
  const auto good = read_file(kRecorded / "shapes.pt");
  expect_recorded_values(read_pt(write(good + "x")), "shapes");
  expect_recorded_values(read_pt(write(good + std::string(60'000, 'x'))), "shapes");
  expect_refused(good + std::string(70'000, 'x'), "not a zip file");
  const auto from_a_mac = archive("\x80\x02K\x07.", {{"__MACOSX/a/._data.pkl", "x"}});
  EXPECT_EQ(std::get<int64_t>(read_pt(write(from_a_mac))), 7);

  const auto deflated = read_file(kRecorded / "deflated.pt");
  const auto changed = [&](size_t field, const std::string& value) {
    const size_t entry = deflated.find("PK\x01\x02");  // of data.pkl
    auto file = deflated;
    return file.replace(entry + field, value.size(), value);
  };
  expect_refused(changed(10, "\x0c"), "data.pkl' is compressed, and not by deflate");
  expect_refused(changed(16, "\x01\x02\x03\x04"), "data.pkl' does not match its CRC-32");
  expect_refused(changed(24, "\x01\x00"s), "data.pkl' is compressed, and its data are damaged");
  expect_refused(changed(24, "\xff\xff\xff\x7f"), "more than is possible");
  auto damaged = deflated;
  const size_t name = damaged.find("data.pkl");
  damaged[name + 20] = static_cast<char>(damaged[name + 20] ^ 0x55);
  expect_refused(damaged, "data.pkl");
}

// What a state_dict has besides tensors: None for a parameter that is absent, and any object of get_extra_state().
TEST_F(PtFileTest, StateDictsMayHaveNoneAndExtraState) {
  const auto text = [](const std::string& value) { return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value; };
  const auto path = write(archive("\x80\x02}(" + text("bias") + "N" + text("a._extra_state") + "cio\nBytesIO\n)R" +
                                  text("_extra_state") + "}(K\x01Nu" + "u."));
  EXPECT_TRUE(read_state_dict(path).empty());
  EXPECT_THAT(test::message_of([&] { read_pt(path); }, ErrorCode::kDataLoss), HasSubstr("it names io.BytesIO"));
  write_pt(folder_ / "t.pt", PtDict{{{"w", at::ones({2})},
                                     {"a._extra_state", at::zeros({1})},
                                     {"b._extra_state", PtDict{{{"scale", 1.0}}}},
                                     {"none", PtValue()}}});
  const auto tensors = read_state_dict(folder_ / "t.pt");
  EXPECT_EQ(tensors.size(), 2u);
  EXPECT_TRUE(tensors.contains("a._extra_state"));
  write_pt(folder_ / "t.pt", PtDict{{{"my_extra_state", 1}}});
  EXPECT_THAT(test::message_of([&] { read_state_dict(folder_ / "t.pt"); }, ErrorCode::kInvalidArgument),
              HasSubstr("'my_extra_state' is a int, not a tensor"));
}

TEST_F(PtFileTest, SharedStoragesStayShared) {
  const auto check = [](const TensorMap& tensors) {
    const auto &base = tensors.at("base"), &view = tensors.at("view");
    EXPECT_EQ(base.storage().unsafeGetStorageImpl(), view.storage().unsafeGetStorageImpl());
    EXPECT_EQ(view.storage_offset(), 4);
    view.fill_(-1);
    EXPECT_EQ(base[4].item<float>(), -1);
    EXPECT_EQ(base[3].item<float>(), 3);
  };
  const auto path = folder_ / "t.pt";
  write_pt(path, to_pt(read_state_dict(kRecorded / "shapes.pt")));
  for (int i = 0; i < 2; ++i) {  // check() writes to the tensors; a second read must not see these changes
    check(read_state_dict(kRecorded / "shapes.pt"));
    check(read_state_dict(path));
  }
  // A storage that is viewed with two dtypes is written once for each.
  const auto floats = at::arange(4, at::kFloat);
  write_pt(path, PtDict{{{"f", floats}, {"i", floats.view(at::kInt)}}});
  const auto read = read_state_dict(path);
  EXPECT_TRUE(read.at("i").equal(floats.view(at::kInt)));
  EXPECT_TRUE(read.at("f").equal(floats));
}

TEST_F(PtFileTest, ContentsAreAlignedAndUnharmedInTheEyesOfAZipReader) {
  const auto path = folder_ / "t.pt";
  write_pt(path, to_pt({{"a", at::ones({3})}, {"b", at::ones({}, at::kByte)}, {"c", at::zeros({0})}}));
  const auto text = read_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  const auto entries = parse_zip(bytes, "t");
  EXPECT_EQ(entries.size(), 9u);
  for (const auto& [name, entry] : entries) {
    EXPECT_EQ(entry.begin_byte % 64, 0) << name;
    zip_content(bytes, entry, name, "t");
  }
  EXPECT_EQ(entries.at("archive/data/0").num_bytes, 12);
  EXPECT_EQ(entries.at("archive/.data/serialization_id").num_bytes, 40);
}

TEST_F(PtFileTest, StateDictsByTheirPlace) {
  const auto flat = read_state_dict(kRecorded / "state_dict.pt");
  EXPECT_EQ(flat.size(), 9u);
  const auto nested = read_state_dict(kRecorded / "trainer.pt", {"state_dict"});
  EXPECT_EQ(nested.size(), 9u);
  EXPECT_EQ(nested.at("head.weight").sizes(), (std::vector<int64_t>{3, 4}));
  const auto refuse = [&](const std::vector<std::string>& keys, const std::string& reason) {
    try {
      read_state_dict(kRecorded / "trainer.pt", keys);
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  };
  refuse({},
         "trainer.pt: 'epoch' is a int, not a tensor; give the keys of the dictionary with the tensors: "
         "{\"state_dict\"} or {\"optimizer\"}");
  refuse({"model"}, "trainer.pt: there is no 'model'; there is 'epoch', 'state_dict', 'optimizer', ");
  refuse({"epoch", "x"}, "trainer.pt['epoch']: there is a int, where 'x' was looked for");
  refuse({"best"}, "trainer.pt['best']: a float, not a dictionary of tensors");
  refuse({"optimizer"},
         "'state' is a dict, not a tensor; give the keys of the dictionary with the tensors: "
         "{\"optimizer\", \"state\"}");
}

// A trainer's file contains other objects than weights, such as sets, bytes, counters and arguments.
TEST_F(PtFileTest, WhatIsBesideTheWeightsDoesNotMatter) {
  const auto path = kRecorded / "beside.pt";
  const auto weights = read_state_dict(path, {"model"});
  ASSERT_EQ(weights.size(), 1u);
  EXPECT_TRUE(at::equal(weights.at("weight"), at::arange(6.0).to(at::kFloat).view({2, 3})));
  for (const auto& keys : std::vector<std::vector<std::string>>{{}, {"seen"}, {"none"}}) {
    EXPECT_THROW(read_state_dict(path, keys), Error);
  }
  for (const auto& [key, reason] :
       std::map<std::string, std::string>{{"seen", "it names __builtin__.set, which is not"},
                                          {"raw", "it names _codecs.encode"},
                                          {"counts", "it names collections.Counter"},
                                          {"long", "it has an integer of over 64 bits"},
                                          {"arguments", "it names argparse.Namespace"}}) {
    EXPECT_THAT(test::message_of([&, &key = key] { read_state_dict(path, {key}); }, ErrorCode::kDataLoss),
                HasSubstr(reason))
        << key;
  }
  EXPECT_THROW(read_pt(path), Error);
}

TEST_F(PtFileTest, OtherFormatsSayHowToConvertThem) {
  const auto expect = [](const std::string& name, ErrorCode code, const std::string& reason) {
    try {
      read_pt(kRecorded / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name + ": "), HasSubstr(reason)));
    }
  };
  expect("script.pt", ErrorCode::kFailedPrecondition, "torch.jit.load('OLD.pt'");
  expect("sparse.pt", ErrorCode::kDataLoss, "it names torch._utils._rebuild_sparse_tensor, which is not");
  expect("dtypes.safetensors", ErrorCode::kDataLoss, "not a zip file");
  std::string tar(1024, '\0');
  tar.replace(0, 8, "storages").replace(257, 5, "ustar");
  EXPECT_THAT(test::message_of([&] { read_pt(write(tar)); }, ErrorCode::kFailedPrecondition),
              AllOf(HasSubstr("a tar file"), HasSubstr("weights_only=False")));
  expect("absent.pt", ErrorCode::kNotFound, "No such file");
}

TEST_F(PtFileTest, RefusesToWriteWhatIsNoPlainData) {
  const auto refuse = [&](const PtValue& value, const std::string& reason) {
    try {
      write_pt(folder_ / "t.pt", value);
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  };
  const auto in_a_list = [](const PtValue& value) { return PtDict{{{"a", PtList{{PtValue(1), value}}}}}; };
  refuse(in_a_list(at::Tensor()), "the value['a'][1] is an undefined tensor");
  refuse(in_a_list(at::ones({2}).to_sparse()), "the value['a'][1] is a tensor that is sparse");
  refuse(in_a_list("\xff"), "the value['a'][1] is a text that is not UTF-8");
  refuse(PtDict{{{PtList{}, 1}}}, "the value has a list for a key");
  refuse(PtDict{{{PtTuple{{at::ones({1})}}, 1}}}, "the value has a tuple for a key");
  PtValue deep;
  for (int i = 0; i < 300; ++i) deep = PtList{{deep}};
  refuse(deep, "nested over 256 deep");
  EXPECT_FALSE(fs::exists(folder_ / "t.pt"));
}

TEST_F(PtFileTest, RefusesHostilePickles) {
  const auto pickle = [](const std::string& body) { return archive("\x80\x02" + body + "."); };
  expect_refused(pickle("cposix\nsystem\nX\x02\x00\x00\x00"s + "id\x85R"), "it names posix.system");
  // A list that contains itself, and a "billion laughs" file: ten lists, each with ten references to the previous one.
  expect_refused(pickle("]q\x00h\x00"s + "a"), "nested over 256 deep");
  std::string laughs = "](";
  for (int i = 0; i < 10; ++i) laughs += "X\x04\x00\x00\x00"s + "haha";
  laughs +=
      "eq\x01"
      "0";
  for (char level = 2; level < 12; ++level) {
    laughs += "](";
    for (int i = 0; i < 10; ++i) laughs += std::string("h") + static_cast<char>(level - 1);
    laughs += std::string("eq") + level + (level < 11 ? "0" : "");
  }
  expect_refused(pickle(laughs), "the same objects over and over");
  std::string long_text = "](X\x00\x00\x10\x00"s + std::string(1 << 20, 'x') + "q\x01";
  for (int i = 0; i < 1'000'000; ++i) long_text += "h\x01";
  expect_refused(pickle(long_text + "e"), "the same objects over and over");
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "]";
  for (int i = 1; i < 1'000'000; ++i) deep += "a";
  expect_refused(pickle(deep), "nested over 256 deep");
  expect_refused(pickle("}]Ns"), "a dictionary has a list for a key");
  expect_refused(pickle("}K\x01NK\x01Nss"), "there is none");
  expect_refused(pickle("}(K\x01N\x88Nu"), "the same key twice");  // in Python 1 and True are equal
  expect_refused(pickle("ctorch\nSize\n"), "a class or function stands where a value should");
}

TEST_F(PtFileTest, RefusesTensorsThatDoNotFit) {
  const auto tensor = [](const std::string& type, const std::string& numel, const std::string& rest,
                         const std::string& data = std::string(16, '\1')) {
    return archive(
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00"s +
            "storagectorch\n" + type + "\nX\x01\x00\x00\x00"s + "0X\x03\x00\x00\x00"s + "cpu" + numel + "tQ" + rest +
            "\x89"
            "ccollections\nOrderedDict\n)RtR.",
        {{"a/data/0", data}});
  };
  const auto number = [](int64_t value) {
    return "\x8a\x08"s + std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto floats = [&](int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    std::string rest = number(offset) + "(";
    for (const auto size : sizes) rest += number(size);
    rest += "t(";
    for (const auto stride : strides) rest += number(stride);
    return tensor("FloatStorage", "K\x04", rest + "t");
  };
  EXPECT_EQ(std::get<at::Tensor>(read_pt(write(floats(1, {3}, {1})))).numel(), 3);
  EXPECT_EQ(std::get<at::Tensor>(read_pt(write(floats(4, {0}, {1})))).numel(), 0);
  EXPECT_EQ(std::get<at::Tensor>(read_pt(write(floats(3, {}, {})))).dim(), 0);
  EXPECT_EQ(std::get<at::Tensor>(read_pt(write(floats(3, {1000}, {0})))).numel(), 1000);
  constexpr int64_t kMax = INT64_MAX;
  const std::vector<std::string> refused = {
      floats(0, {5}, {1}),
      floats(4, {}, {}),
      floats(5, {0}, {1}),
      floats(-1, {1}, {1}),
      floats(kMax, {1}, {1}),
      floats(1, {2}, {3}),
      floats(0, {2, 2}, {1}),
      floats(0, {-1}, {1}),
      floats(3, {2}, {-1}),
      floats(0, {kMax}, {1}),
      floats(0, {2}, {kMax}),
      floats(0, {3, 3}, {kMax / 2, kMax / 2}),
      floats(0, {kMax, kMax}, {0, 0}),
      floats(0, {0, kMax, kMax}, {0, 0, 0}),
      floats(0, {kMax / 2}, {0}),
      floats(0, {1LL << 33, 1LL << 33}, {0, 0}),
  };
  for (const auto& file : refused) expect_refused(file, "does not fit in 'data/0' with its 16 bytes");

  const auto one = number(0) + "))";
  expect_refused(tensor("FloatStorage", "K\x05", one), "has 16 bytes, and the pickle says 5 elements of float32");
  expect_refused(tensor("FloatStorage", number(kMax), one), "elements of float32");
  expect_refused(tensor("FloatStorage", number((1LL << 62) + 4), one), "elements of float32");  // wraps to 16 bytes
  expect_refused(tensor("BoolStorage", "K\x02", one, "\1\2"), "a bool that is neither 0 nor 1");
  expect_refused(archive("\x80\x02"
                         "(X\x07\x00\x00\x00"s +
                             "storagectorch\nFloatStorage\nX\x01\x00\x00\x00"s + "0X\x03\x00\x00\x00"s + "cpuK\x00tQ."s,
                         {{"a/data/0", ""}}),
                 "a storage stands alone");
  auto missing = floats(0, {1}, {1});
  for (size_t at = 0; (at = missing.find("a/data/0", at)) != missing.npos; ++at) missing[at + 7] = '7';
  expect_refused(missing, "the entry 'data/0' is missing");
}

TEST_F(PtFileTest, RefusesDamagedAndForeignArchives) {
  const auto good = archive("\x80\x02N.", {{"a/byteorder", "little"}});
  EXPECT_EQ(read_pt(write(good)).type_name(), "None");
  expect_refused(archive("\x80\x02N.", {{"a/byteorder", "big"}}), "its byte order is 'big'");
  expect_refused(archive("\x80\x02N.", {{"b/c", ""}}), "the entry 'b/c' is not in the folder 'a/'");
  expect_refused(ZipWriter().end(), "it has no data.pkl");
  expect_refused("", "not a zip file");
  expect_refused(std::string(100'000, 'P'), "not a zip file");
  auto changed = good;
  changed[changed.find("\x80\x02N.") + 2] = '}';
  expect_refused(changed, "the entry 'data.pkl' does not match its CRC-32");
  for (size_t length = 0; length < good.size(); ++length) {
    expect_refused(good.substr(0, length), "");
  }
}

/// Replaces the field at `offset` of the file's directory entry by `value`.
std::string with_field(std::string file, size_t offset, const std::string& value) {
  return file.replace(file.find("PK\x01\x02") + offset, value.size(), value);
}

TEST_F(PtFileTest, RefusesHostileDirectories) {
  const auto good = archive("\x80\x02N.");
  expect_refused(with_field(good, 8, "\x01"), "is encrypted");
  expect_refused(with_field(good, 10, "\x08"), "is compressed");
  expect_refused(with_field(good, 28, "\xff\xff"), "entry 0 of its directory is broken");
  expect_refused(with_field(good, 46, "b"), "has another name at its place");
  expect_refused(with_field(good, 46 + 10 + 4, "\x05"), "has two sizes");
  const size_t sizes = 46 + 10 + 4;  // in the zip64 field
  const auto huge = std::string(7, '\xff') + "\x7f";
  expect_refused(with_field(good, sizes, huge + huge), "truncated");
  expect_refused(with_field(good, sizes, std::string(16, '\xff')), "a length of 18446744073709551615 bytes");
  expect_refused(with_field(good, sizes + 16, huge), "truncated");
  expect_refused(with_field(good, sizes - 2, "\x08"), "a zip64 field is too short");
  auto twice = archive("\x80\x02N.", {{"a/data.pk2", "\x80\x02N."}});
  for (size_t at = 0; (at = twice.find("data.pk2", at)) != twice.npos; ++at) twice[at + 7] = 'l';
  expect_refused(twice, "the entry 'a/data.pkl' is there twice");
  // The archive claims to have 127 entries, for which its directory is too small.
  auto many = good;
  const size_t count = many.find("PK\x06\x06") + 32;
  many.replace(count, 1, "\x7f");
  expect_refused(many, "cannot hold 127 entries");
}

// Compares with PyTorch. Needs a Python with torch and safetensors, so it does not run in CI.
TEST_F(PtFileTest, WhatItWritesEqualsPyTorchsToTheLastBit) {
  const char* torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  const auto python = (fs::path(torchrun).parent_path() / "python").string();
  auto command = fmt::format("'{}' '{}'", python, test::reference("check_pt_file.py"));
  for (const auto* name : {"dtypes", "shapes", "state_dict", "trainer"}) {
    const auto theirs = kRecorded / (name + ".pt"s), ours = folder_ / (name + ".pt"s);
    write_pt(ours, read_pt(theirs));
    command += fmt::format(" '{}' '{}'", theirs.string(), ours.string());
  }
  for (const auto* name : {"shapes", "state_dict"}) {
    const auto theirs = kRecorded / (name + ".pt"s), ours = folder_ / (name + ".safetensors"s);
    write_safetensors(ours, read_state_dict(theirs));
    command += fmt::format(" '{}' '{}'", theirs.string(), ours.string());
  }
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(PtFileTest, SafetensorsOfPythonHoldTheSameBits) {
  const auto& expected = record_["files"]["dtypes"]["tensors"];
  const SafetensorsReader reader(kRecorded / "dtypes.safetensors");
  const auto copies = read_safetensors(kRecorded / "dtypes.safetensors").tensors;
  EXPECT_EQ(reader.names().size(), expected.size() - 2);  // without complex32 and complex128
  for (const auto& name : reader.names()) {
    expect_recorded(reader.tensor(name), expected["/" + name], name);
    expect_recorded(copies.at(name), expected["/" + name], name);
  }
}

}  // namespace
}  // namespace yoke::train
